package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

const (
	atDocument = atComputer + "/documents/{document}"
	atProposal = atDocument + "/proposals/{proposal}"
)

// AtDocument is what every operation on a document takes.
type AtDocument struct {
	AtComputer
	Document string `path:"document" maxLength:"36"`
}

func (a AtDocument) valid() error { return contract.ValidID("document", a.Document) }

// AtProposal is what every operation on a proposal takes.
type AtProposal struct {
	AtDocument
	Proposal string `path:"proposal" maxLength:"36"`
}

func (a AtProposal) valid() error {
	return errors.Join(a.AtDocument.valid(), contract.ValidID("proposal", a.Proposal))
}

func (s *Server) routeDocuments(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, atDocument, "documents-get", "One revision of a living document"), requestTimeout, func(ctx context.Context, in *struct {
		AtDocument
		Revision int `query:"revision" minimum:"0" doc:"0: the newest"`
	}) (*out[view.Document], error) {
		if err := in.valid(); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		d, err := c.Document(ctx, in.Document, in.Revision)
		return &out[view.Document]{d}, err
	})
	register(hapi, s, route(http.MethodGet, atDocument+"/proposals", "proposals-list", "Changes that wait for you, newest first, without their text"), requestTimeout, func(ctx context.Context, in *struct {
		AtDocument
		Paged
		All bool `query:"all" doc:"those that were resolved, too"`
	}) (*outPage[view.Proposal], error) {
		if err := in.valid(); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		list, more, err := c.Proposals(ctx, in.Document, in.All, in.Before, in.Limit)
		return listOf(list, more), err
	})
	register(hapi, s, route(http.MethodGet, atProposal, "proposals-get", "One proposed change, and what accepting it would do"), requestTimeout, func(ctx context.Context, in *AtProposal) (*out[view.Proposal], error) {
		if err := in.valid(); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		p, err := c.Proposal(ctx, in.Document, in.Proposal)
		return &out[view.Proposal]{p}, err
	})
	for _, v := range []struct{ verb, summary string }{
		{"accept", "Merge a proposed change into the document; where both changed the same lines, it wins"},
		{"dismiss", "Decide against a proposed change"},
	} {
		register(hapi, s, route(http.MethodPost, atProposal+"/"+v.verb, "proposals-"+v.verb, v.summary), requestTimeout, func(ctx context.Context, in *AtProposal) (*out[view.Resolved], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			c, err := s.computer(ctx, in.Computer)
			if err != nil {
				return nil, err
			}
			done, err := c.Resolve(ctx, callerOf(ctx).user, in.Document, in.Proposal, v.verb == "accept")
			return &out[view.Resolved]{done}, err
		})
	}
}
