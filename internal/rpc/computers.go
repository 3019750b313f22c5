package rpc

import (
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

func get(path, id string) Route  { return Route{http.MethodGet, path, id} }
func post(path, id string) Route { return Route{http.MethodPost, path, id} }

// Paged are the parameters of a list that is paged by sequence.
type Paged struct {
	Before uint64 `query:"before" doc:"only what is older than this sequence; 0: from the newest"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

// Of is a request that has no parameters but the computer.
type Of struct{ At }

// RenameRequest gives a computer another name.
type RenameRequest struct {
	At
	Body struct {
		Name string `json:"name" required:"true" minLength:"1" maxLength:"100"`
	}
}

// RebuildRequest replays a log.
type RebuildRequest struct {
	At
	Body struct {
		Check bool `json:"check,omitempty" doc:"only compare"`
	}
}

// WakeRequest asks for another try to wake a computer.
type WakeRequest struct {
	At
	Body view.WakeRequest
}

// TicketRequest asks for a ticket that lets a page into a desktop.
type TicketRequest struct {
	At
	Generation int `query:"generation" minimum:"0" maximum:"1000000" doc:"which of the desktop's origins: the next one leaves a page that hangs, and what it stored, behind"`
}

// OnCommand names one of the user's own commands.
type OnCommand struct {
	At
	Command string `path:"command" maxLength:"36"`
}

// SignalRequest sends a signal or a terminal's size to a running command.
type SignalRequest struct {
	OnCommand
	Body view.CommandSignal
}

// LogRequest reads the log.
type LogRequest struct {
	At
	After uint64 `query:"after"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"500"`
}

// EventsRequest streams the log.
type EventsRequest struct {
	At
	After   uint64   `query:"after" doc:"only events with a greater sequence"`
	Limit   int      `query:"limit" minimum:"0" doc:"at most so many; 0: all there are"`
	Type    []string `query:"type,explode" maxItems:"20" doc:"only these types"`
	Run     string   `query:"run" maxLength:"64" doc:"only this run's"`
	Task    string   `query:"task" maxLength:"64" doc:"only this task's"`
	Subject string   `query:"subject" maxLength:"1024" doc:"only those about this"`
	Follow  bool     `query:"follow" doc:"go on with what happens"`
}

// Validate refuses an event type that does not exist, of which no event would ever come.
func (r EventsRequest) Validate() error {
	for _, t := range r.Type {
		if _, ok := contract.Lookup(t); !ok {
			return &contract.FieldError{Field: "type", Reason: "is not a known event type"}
		}
	}
	return nil
}

// ForkRequest makes a computer from a checkpoint of another one.
type ForkRequest struct {
	At
	Body struct {
		ID         contract.CID `json:"id,omitempty" doc:"16 lower-case letters and digits drawn by the sender; the same id again is the same computer" maxLength:"16"`
		Name       string       `json:"name" required:"true" minLength:"1" maxLength:"100"`
		Checkpoint string       `json:"checkpoint,omitempty" doc:"empty: one that is made first" maxLength:"40"`
	}
}

// Validate implements validation.
func (r ForkRequest) Validate() error {
	if r.Body.Checkpoint != "" {
		if err := view.ValidRevision("checkpoint", r.Body.Checkpoint); err != nil {
			return err
		}
	}
	if r.Body.ID == "" {
		return nil
	}
	return r.Body.ID.Validate()
}

// A computer, its log and what is shown around its desktop.
var (
	ComputerGet = single[Of, view.Computer](Declared{
		Name: "computer.get", Summary: "One computer, which is not woken for it", HTTP: get("", "computers-get"), May: contract.CanRead, Callers: API, Needs: Known, Host: true})
	ComputerHealth = single[Of, view.ComputerHealth](Declared{
		Name: "computer.health", Summary: "How the parts of this computer are, and what its open runs wait for", May: contract.CanRead, Callers: Desktop})
	ComputerRename = single[RenameRequest, view.Acted](Declared{
		Name: "computer.rename", Summary: "Give a computer another name; its desktop's address stays",
		HTTP: Route{http.MethodPatch, "", "computers-rename"}, May: contract.CanArrange, Callers: API, Effect: Stores, Host: true})
	ComputerRebuild = single[RebuildRequest, view.Rebuilt](Declared{
		Name: "computer.rebuild", Summary: "Replay the log into a new state file",
		HTTP: post("/rebuild", "computers-rebuild"), May: contract.CanManage, Callers: API, Effect: Stores, Limit: Long})
	ComputerWake = done[WakeRequest](Declared{
		Name: "computer.wake", Summary: "Wake a computer that is asleep, or try again one that did not wake",
		HTTP: post("/wake", "computers-wake"), May: contract.CanArrange, Callers: API, Effect: Stops, Needs: Known, Host: true})
	ComputerRemove = single[Of, view.Computer](Declared{
		Name: "computer.remove", Summary: "Remove a computer, as it is; for a week it can be put back",
		HTTP: Route{http.MethodDelete, "", "computers-remove"}, May: contract.CanManage, Callers: API, Effect: Stops, Needs: Known, Host: true})
	ComputerPutBack = single[Of, view.Computer](Declared{
		Name: "computer.putback", Summary: "Put a computer back that was removed; answered once it is awake",
		HTTP: post("/put-back", "computers-put-back"), May: contract.CanManage, Callers: API, Effect: Stops, Needs: Known, Host: true, Limit: 2 * Quick})
	ComputerFork = single[ForkRequest, view.Computer](Declared{
		Name: "computer.fork", Summary: "Make a computer with the files and documents of a checkpoint of this one; answered once it is awake",
		HTTP: post("/fork", "computers-fork"), May: contract.CanRestore, Also: contract.CanComputers, Callers: API, Effect: Stops, Host: true, Limit: Long})
	ComputerRecover = done[Of](Declared{
		Name: "computer.recover", Summary: "Bring back what is damaged from what else knows it; only what all share closes the others meanwhile",
		HTTP: post("/recover", "computers-recover"), May: contract.CanManage, Also: contract.CanMachine, Callers: API, Effect: Stops, Needs: Known, Host: true})
	ComputerExport = bytes[Of](Declared{
		Name: "computer.export", Summary: "A tar archive of a computer's files and events, also of one that does not wake",
		HTTP: get("/export", "computers-export"), May: contract.CanManage, Callers: API, Kind: Download, Needs: Known})

	FrameGet = single[Of, view.Frame](Declared{
		Name: "frame.get", Summary: "What the console shows around a desktop", HTTP: get("/frame", "frame-get"), May: contract.CanRead, Callers: API, Host: true})
	FrameStream = bytes[Of](Declared{
		Name: "frame.stream", Summary: "The frame as server-sent events, whenever it changes",
		HTTP: get("/frame/stream", "frame-stream"), May: contract.CanRead, Callers: API, Kind: Stream})
	FrameTicket = single[TicketRequest, view.Ticket](Declared{
		Name: "frame.ticket", Summary: "Let the console's page into the desktop",
		HTTP: post("/ticket", "frame-ticket"), May: contract.CanEnter, Callers: Console, Effect: Governs, Host: true})

	EventsRead = bytes[EventsRequest](Declared{
		Name: "events.read", Summary: "The log as CloudEvents, one a line; empty lines mean nothing",
		HTTP: get("/events", "events-read"), May: contract.CanRead, Callers: API, Kind: Stream, Needs: History})
	LogRead = single[LogRequest, view.EventPage](Declared{
		Name: "log.read", Summary: "Events with sequence > after, ascending", May: contract.CanRead, Callers: Desktop})
	StateSnapshot = single[Of, view.Snapshot](Declared{
		Name: "state.snapshot", Summary: "What the first paint needs, and nothing more", May: contract.CanRead, Callers: Desktop})
)

// ExecRequest starts a command whose output is requested separately.
type ExecRequest struct {
	At
	Body struct {
		ID   string   `json:"id" minLength:"1" maxLength:"36"`
		Argv []string `json:"argv"`
		Cwd  string   `json:"cwd,omitempty" maxLength:"4096"`
	}
}

// OutputRequest asks for what is kept of a command's output after a chunk.
type OutputRequest struct {
	At
	Body struct {
		Command string `json:"command"`
		After   int64  `json:"after"`
		Wait    bool   `json:"wait,omitempty" doc:"answer when there is some"`
	}
}

// StopRequest names a command that a desktop started.
type StopRequest struct {
	At
	Body struct {
		Command string `json:"command"`
	}
}

// The user's own commands.
var (
	CommandStop = done[OnCommand](Declared{
		Name: "command.stop", Summary: "Stop one of your own commands, whoever started it",
		HTTP: post("/commands/{command}/stop", "commands-stop"), May: contract.CanExec, Callers: API, Effect: Governs})
	CommandSignal = done[SignalRequest](Declared{
		Name: "command.signal", Summary: "Bring a signal or a terminal's new size to one of your own commands that runs",
		HTTP: post("/commands/{command}/signal", "commands-signal"), May: contract.CanExec, Callers: API, Effect: Governs})
	ExecHTTP = bytes[Of](Declared{
		Name: "command.run", Summary: "Run your own command on the live tree",
		Detail: "The body is one line of JSON (argv, cwd, stdin, terminal) and then, with stdin, the command's standard input. " +
			"The answer is frames of one byte of kind, four bytes of length (big endian) and the payload: " +
			"s started, o output, e errors, k alive, x exited, p problem. Leaving ends the command.",
		HTTP: post("/exec", "exec-run"), May: contract.CanExec, Callers: API, Effect: Stores, Kind: Duplex})
	ExecRun = single[ExecRequest, view.Started](Declared{
		Name: "exec.run", Summary: "Run your own command; answered as soon as its start is in the log", May: contract.CanExec, Callers: Desktop, Effect: Stores, Host: true})
	ExecOutput = single[OutputRequest, view.Output](Declared{
		Name: "exec.output", Summary: "What is kept of a command's output after a chunk", May: contract.CanRead, Callers: Desktop, Host: true})
	ExecStop = done[StopRequest](Declared{
		Name: "exec.stop", Summary: "Stop a command that a desktop started", May: contract.CanExec, Callers: Desktop, Effect: Stops, Host: true})
)
