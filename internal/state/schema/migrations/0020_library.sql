-- What the computer's tasks quoted, and what is said by it. Nothing ever was in the tables of these names before.
DROP TABLE citations;
DROP TABLE sources;
CREATE TABLE sources (
  id        TEXT    PRIMARY KEY,
  address   TEXT    NOT NULL, -- https://…, or a path in the workspace
  title     TEXT    NOT NULL,
  media     TEXT    NOT NULL,
  text      TEXT    NOT NULL, -- blob
  bytes     INTEGER NOT NULL,
  truncated INTEGER NOT NULL,
  read      TEXT    NOT NULL, -- when
  commit_id TEXT    NOT NULL, -- of a path: the checkpoint that has it so
  run       TEXT    NOT NULL,
  task      TEXT    NOT NULL,
  seq       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sources_by_seq ON sources (seq);
CREATE TABLE citations (
  label   TEXT    PRIMARY KEY,
  source  TEXT    NOT NULL REFERENCES sources (id),
  claim   TEXT    NOT NULL,
  excerpt TEXT    NOT NULL,
  line    INTEGER NOT NULL,
  support TEXT    NOT NULL,
  reason  TEXT    NOT NULL,
  model   TEXT    NOT NULL,
  run     TEXT    NOT NULL,
  task    TEXT    NOT NULL,
  seq     INTEGER NOT NULL -- of its newest judgement
) STRICT, WITHOUT ROWID;
CREATE INDEX citations_by_source ON citations (source);
CREATE INDEX citations_by_run ON citations (run);
