package rpc

import (
	"errors"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// FilesRequest lists a folder.
type FilesRequest struct {
	At
	Path  string `query:"path" maxLength:"4096" doc:"empty: the workspace's root"`
	After string `query:"after" maxLength:"4096" doc:"only what comes after this path"`
	Limit int    `query:"limit" minimum:"1" maximum:"2000" default:"1000"`
}

// Validate implements validation.
func (r FilesRequest) Validate() error {
	if r.Path == "" {
		return nil
	}
	return contract.ValidPath("path", r.Path)
}

// OnPath names a file or folder.
type OnPath struct {
	At
	Path string `query:"path" required:"true" minLength:"1" maxLength:"4096" doc:"relative to the workspace's root"`
}

// Validate implements validation.
func (r OnPath) Validate() error { return contract.ValidPath("path", r.Path) }

// PutRequest says where a file goes.
type PutRequest struct {
	OnPath
	Conditions
	Mode string `query:"mode" pattern:"^(0644|0755)?$" doc:"empty: that of the file it replaces, 0644 where nothing is"`
}

// Validate implements validation.
func (r PutRequest) Validate() error {
	return errors.Join(r.OnPath.Validate(), r.Conditions.Validate())
}

// RemoveRequest removes a file or folder.
type RemoveRequest struct {
	OnPath
	Conditions
	Recursive bool `query:"recursive"`
}

// Validate implements validation.
func (r RemoveRequest) Validate() error {
	return errors.Join(r.OnPath.Validate(), r.Conditions.Validate())
}

// MoveRequest moves a file or folder.
type MoveRequest struct {
	At
	Body view.MoveRequest
}

// Validate implements validation.
func (r MoveRequest) Validate() error {
	return errors.Join(contract.ValidPath("from", r.Body.From), contract.ValidPath("to", r.Body.To))
}

// TrashRequest lists the trash.
type TrashRequest struct {
	At
	Before string `query:"before" maxLength:"64" doc:"only what is older than this entry"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
}

// PutBackRequest brings something back from the trash.
type PutBackRequest struct {
	At
	Entry string `path:"entry" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$"`
	Body  view.PutBackRequest
}

// Validate implements validation.
func (r PutBackRequest) Validate() error {
	if r.Body.To == "" {
		return nil
	}
	return contract.ValidPath("to", r.Body.To)
}

// AddRequest brings a repository in.
type AddRequest struct {
	At
	Body view.AddRequest
}

// Validate implements validation.
func (r AddRequest) Validate() error { return r.Body.Validate() }

// AddTarRequest brings a folder in.
type AddTarRequest struct {
	At
	Name   string `query:"name" required:"true" minLength:"1" maxLength:"200" doc:"folder under workspace/"`
	Origin string `query:"origin" maxLength:"4096" doc:"what the sender calls it"`
}

// Validate implements validation.
func (r AddTarRequest) Validate() error { return view.ValidName("name", r.Name) }

// The files of the live tree.
var (
	FilesList = list[FilesRequest, view.File](Declared{
		Name: "files.list", Summary: "A folder's entries by name, or the one entry of a file",
		HTTP: get("/files", "files-list"), May: contract.CanRead, Callers: API | Desktop, Noun: "files",
		Tool: &Tool{Description: "List a folder of the workspace by name, or the one entry of a file. Page with after."}})
	FilesGet = bytes[OnPath](Declared{
		Name: "files.get", Summary: "A file's content", HTTP: get("/content", "files-get"), May: contract.CanRead, Callers: API, Kind: Download})
	FilesPut = bytes[PutRequest](Declared{
		Name: "files.put", Summary: "Replace or make a file",
		HTTP: Route{http.MethodPut, "/content", "files-put"}, May: contract.CanWrite, Callers: API, Effect: Stores, Kind: Upload})
	FilesRemove = done[RemoveRequest](Declared{
		Name: "files.remove", Summary: "Remove a file, or a folder with recursive",
		HTTP: Route{http.MethodDelete, "/content", "files-remove"}, May: contract.CanWrite, Callers: API, Effect: Stores, Limit: Long})
	FilesMove = single[MoveRequest, view.File](Declared{
		Name: "files.move", Summary: "Give a file or folder another name, where nothing is",
		HTTP: post("/files/move", "files-move"), May: contract.CanWrite, Callers: API, Effect: Stores, Limit: Long})
	FilesAddURL = single[AddRequest, view.Added](Declared{
		Name: "files.add_url", Summary: "Bring a repository in by URL, through egress",
		HTTP: post("/add", "files-add-url"), May: contract.CanWrite, Callers: API, Effect: Stores, Limit: Long})
	FilesAddTar = bytes[AddTarRequest](Declared{
		Name: "files.add_tar", Summary: "Bring a folder in as a tar stream",
		HTTP: post("/add/tar", "files-add-tar"), May: contract.CanWrite, Callers: API, Effect: Stores, Kind: Upload})
	TrashList = list[TrashRequest, view.Trashed](Declared{
		Name: "trash.list", Summary: "What was removed or overwritten in the last week, newest first",
		HTTP: get("/trash", "trash-list"), May: contract.CanRead, Callers: API, Noun: "entries"})
	TrashPutBack = single[PutBackRequest, view.File](Declared{
		Name: "trash.put_back", Summary: "Bring something back from the trash, where nothing is",
		HTTP: post("/trash/{entry}/put-back", "trash-put-back"), May: contract.CanWrite, Callers: API, Effect: Stores, Limit: Long})
)
