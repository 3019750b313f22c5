-- What calls changed outside of the computer, or may have. Each is there before anything leaves.
CREATE TABLE effects (
  id          TEXT    PRIMARY KEY,
  run         TEXT    NOT NULL,
  task        TEXT    NOT NULL,
  time        TEXT    NOT NULL,
  seq         INTEGER NOT NULL,
  changed     INTEGER NOT NULL,              -- sequence of the newest event about it
  outcome     TEXT    NOT NULL DEFAULT 'open', -- done, failed or unknown, a person's word included
  intended    TEXT    NOT NULL,              -- JSON, as the two that follow
  ended       TEXT    NOT NULL DEFAULT 'null',
  resolved    TEXT    NOT NULL DEFAULT 'null',
  resolved_by TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_by_seq ON effects (seq);
CREATE INDEX effects_by_run ON effects (run, seq);
CREATE INDEX effects_by_outcome ON effects (outcome, seq);
