package state

import (
	"context"
	"time"

	"choir.dev/choiros/contract"
)

func fileWritten(ctx context.Context, w *writer, e contract.Event, p *contract.FileWritten) error {
	return do(ctx, w, `INSERT INTO files (path, size, sha256, updated, seq) VALUES (?,?,?,?,?)
		ON CONFLICT (path) DO UPDATE SET size = excluded.size, sha256 = excluded.sha256, updated = excluded.updated, seq = excluded.seq`,
		p.Path, p.Size, string(p.SHA256), stamp(e.Time), int64(e.Sequence))
}

func fileRemoved(ctx context.Context, w *writer, _ contract.Event, p *contract.FileRemoved) error {
	return do(ctx, w, `DELETE FROM files WHERE path = ?`, p.Path)
}

func repositoryAdded(ctx context.Context, w *writer, e contract.Event, p *contract.RepositoryAdded) error {
	return do(ctx, w, `INSERT INTO repositories (path, origin, remote, "commit", files, bytes, skipped, added, seq) VALUES (?,?,?,?,?,?,?,?,?)
		ON CONFLICT (path) DO UPDATE SET origin = excluded.origin, remote = excluded.remote, "commit" = excluded."commit",
		files = excluded.files, bytes = excluded.bytes, skipped = excluded.skipped, added = excluded.added, seq = excluded.seq`,
		p.Path, p.Origin, p.Remote, p.Commit, p.Files, p.Bytes, p.Skipped, stamp(e.Time), int64(e.Sequence))
}

func checkpointCreated(ctx context.Context, w *writer, e contract.Event, p *contract.CheckpointCreated) error {
	skipped, err := list(p.Skipped)
	if err != nil {
		return err
	}
	ignored, err := list(p.Ignored)
	if err != nil {
		return err
	}
	// The same commit may have several events: a later one adds what was found out about it
	// since.
	return do(ctx, w, `INSERT INTO checkpoints (id, parent, tree, kind, message, at_seq, verified, files, skipped, left_out, ignored, outside, run, task, time, seq)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET verified = excluded.verified`,
		p.Commit, p.Parent, p.Tree, string(p.Kind), p.Message, int64(p.Seq), string(p.Verified), p.Files, skipped, p.Left, ignored, p.Outside, e.Run, e.Task, stamp(e.Time), int64(e.Sequence))
}

func checkpointRestored(ctx context.Context, w *writer, e contract.Event, p *contract.CheckpointRestored) error {
	paths, err := list(p.Paths)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO restores (seq, "to", safety, checkpoint, paths, undo, time) VALUES (?,?,?,?,?,?,?)`,
		int64(e.Sequence), p.To, p.Safety, p.Checkpoint, paths, boolInt(p.Undo), stamp(e.Time))
}

func publishStarted(ctx context.Context, w *writer, e contract.Event, p *contract.PublishStarted) error {
	return do(ctx, w, `INSERT INTO publishes (id, run, task, "commit", base, live, paths, started_seq) VALUES (?,?,?,?,?,?,?,?)`,
		p.Publish, e.Run, e.Task, p.Commit, p.Base, boolInt(p.Live), p.Paths, int64(e.Sequence))
}

func publishFinished(ctx context.Context, w *writer, e contract.Event, p *contract.PublishFinished) error {
	conflicts, err := list(p.Conflicts)
	if err != nil {
		return err
	}
	return must(ctx, w, "no such publish is open", `UPDATE publishes SET "commit" = ?, conflicts = ?, inverted = ?, finished_seq = ? WHERE id = ? AND finished_seq = 0`,
		p.Commit, conflicts, boolInt(p.Inverted), int64(e.Sequence), p.Publish)
}

func documentRevised(ctx context.Context, w *writer, e contract.Event, p *contract.DocumentRevised) error {
	var err error
	if p.Revision == 1 {
		err = do(ctx, w, `INSERT INTO documents (id, title, path, revision, run, created, updated, seq) VALUES (?,?,?,1,?,?,?,?)`,
			p.Document, p.Title, p.Path, e.Run, stamp(e.Time), stamp(e.Time), int64(e.Sequence))
	} else {
		err = must(ctx, w, "the document is not at the revision's base",
			`UPDATE documents SET title = ?, path = ?, revision = ?, updated = ?, seq = ? WHERE id = ? AND revision = ?`,
			p.Title, p.Path, p.Revision, stamp(e.Time), int64(e.Sequence), p.Document, p.Base)
	}
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO revisions (document, revision, base, title, path, author, role, sha256, body, run, task, causation, time, seq) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		p.Document, p.Revision, p.Base, p.Title, p.Path, p.Author, string(e.Kind()), string(p.SHA256), p.Body, e.Run, e.Task, e.Causation, stamp(e.Time), int64(e.Sequence))
}

func documentProposed(ctx context.Context, w *writer, e contract.Event, p *contract.DocumentProposed) error {
	return must(ctx, w, "the document has no such base", `INSERT INTO proposals (id, document, base, author, role, sha256, body, run, task, time, seq)
		SELECT ?,?,?,?,?,?,?,?,?,?,? WHERE EXISTS (SELECT 1 FROM documents WHERE id = ? AND revision >= ?)`,
		p.Proposal, p.Document, p.Base, p.Author, string(e.Kind()), string(p.SHA256), p.Body, e.Run, e.Task, stamp(e.Time), int64(e.Sequence),
		p.Document, p.Base)
}

func proposalResolved(ctx context.Context, w *writer, e contract.Event, p *contract.ProposalResolved) error {
	// Only a proposal that a newer one replaces is resolved by somebody other than a user.
	if (p.Resolution == contract.ProposalSuperseded) == (e.Kind().Client()) {
		return poisoned("a proposal is not %s by %s", p.Resolution, e.Kind())
	}
	return must(ctx, w, "no such proposal is open", `UPDATE proposals SET status = ?, resolved_by = ?, revision = ?, successor = ?, resolved = ?, resolved_seq = ?
		WHERE id = ? AND document = ? AND status = 'open'`,
		string(p.Resolution), p.By, p.Revision, p.Successor, stamp(e.Time), int64(e.Sequence), p.Proposal, p.Document)
}

func themeChanged(ctx context.Context, w *writer, e contract.Event, p *contract.ThemeChanged) error {
	theme, err := js(p.Theme)
	if err != nil {
		return err
	}
	return do(ctx, w, `INSERT INTO theme (id, theme, sha256, time, seq) VALUES (1,?,?,?,?)
		ON CONFLICT (id) DO UPDATE SET theme = excluded.theme, sha256 = excluded.sha256, time = excluded.time, seq = excluded.seq`,
		theme, string(p.SHA256), stamp(e.Time), int64(e.Sequence))
}

func egressDecided(ctx context.Context, w *writer, e contract.Event, p *contract.EgressDecided) error {
	return do(ctx, w, `INSERT INTO egress (seq, allowed, box, kind, host, port, address, rule, reason, run, task, time) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`,
		int64(e.Sequence), boolInt(e.Type == "egress.allowed"), p.Box, string(p.Kind), p.Host, p.Port, p.Address, p.Rule, p.Reason, e.Run, e.Task, stamp(e.Time))
}

func usageMetered(ctx context.Context, w *writer, e contract.Event, p *contract.UsageMetered) error {
	// The call is the key, so what was metered twice is counted once.
	u := p.Usage
	return do(ctx, w, `INSERT INTO usage (call, run, task, role, provider, model, outcome, retries, estimated, tokens_in, tokens_out, wall_ms, cost_usd, day, time, seq, tokens_cached, tokens_repeated)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		p.Call, e.Run, e.Task, p.Role, p.Provider, p.Model, p.Outcome, p.Retries, boolInt(p.Estimated), u.TokensIn, u.TokensOut, u.WallMS, u.CostUSD,
		e.Time.UTC().Format(time.DateOnly), stamp(e.Time), int64(e.Sequence), u.TokensCached, u.TokensRepeated)
}

func desktopBuilt(ctx context.Context, w *writer, e contract.Event, p *contract.DesktopBuilt) error {
	return do(ctx, w, `INSERT INTO builds (seq, "commit", tree, files, bytes, duration_ms, time) VALUES (?,?,?,?,?,?,?)`,
		int64(e.Sequence), p.Commit, p.Tree, p.Files, p.Bytes, p.DurationMS, stamp(e.Time))
}

func windowOpened(ctx context.Context, w *writer, e contract.Event, p *contract.WindowOpened) error {
	props := "{}"
	if len(p.Props) > 0 {
		var err error
		if props, err = js(p.Props); err != nil {
			return err
		}
	}
	return do(ctx, w, `INSERT INTO windows (id, app, title, x, y, w, h, z, state, props, seq)
		VALUES (?,?,?,?,?,?,?,(SELECT coalesce(max(z), 0) + 1 FROM windows),?,?,?)
		ON CONFLICT (id) DO UPDATE SET app = excluded.app, title = excluded.title, x = excluded.x, y = excluded.y, w = excluded.w, h = excluded.h,
		z = excluded.z, state = excluded.state, props = excluded.props, seq = excluded.seq`,
		p.Window, p.App, p.Title, p.Frame.X, p.Frame.Y, p.Frame.W, p.Frame.H, string(p.State), props, int64(e.Sequence))
}

func windowMoved(ctx context.Context, w *writer, e contract.Event, p *contract.WindowMoved) error {
	return must(ctx, w, "no such window is open", `UPDATE windows SET x = ?, y = ?, w = ?, h = ?, z = ?, state = ?, seq = ? WHERE id = ?`,
		p.Frame.X, p.Frame.Y, p.Frame.W, p.Frame.H, p.Z, string(p.State), int64(e.Sequence), p.Window)
}

func windowFocused(ctx context.Context, w *writer, e contract.Event, p *contract.WindowFocused) error {
	return must(ctx, w, "no such window is open", `UPDATE windows SET z = ?, seq = ? WHERE id = ?`, p.Z, int64(e.Sequence), p.Window)
}

func windowClosed(ctx context.Context, w *writer, _ contract.Event, p *contract.WindowClosed) error {
	return must(ctx, w, "no such window is open", `DELETE FROM windows WHERE id = ?`, p.Window)
}
