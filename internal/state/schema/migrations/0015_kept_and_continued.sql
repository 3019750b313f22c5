-- Trees of attempts that were not published, from which later tasks may go on. Whether a
-- tree is still kept, the workspace knows.
CREATE TABLE kept_trees (
  commit_id TEXT    PRIMARY KEY,
  base      TEXT    NOT NULL, -- the checkpoint that the work began from
  paths     INTEGER NOT NULL, -- how many differ from base
  run       TEXT    NOT NULL,
  task      TEXT    NOT NULL REFERENCES tasks (id),
  attempt   INTEGER NOT NULL,
  seq       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_trees_by_run ON kept_trees (run, seq);
-- The run that a run goes on from; "" if it begins anew.
ALTER TABLE runs ADD COLUMN continues TEXT NOT NULL DEFAULT '';
