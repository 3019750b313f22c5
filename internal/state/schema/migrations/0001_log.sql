-- The log as it was projected, and what is known of the projection itself.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  seq         INTEGER PRIMARY KEY,
  id          TEXT    NOT NULL,
  source      TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  subject     TEXT    NOT NULL DEFAULT '',
  time        TEXT    NOT NULL,
  epoch       INTEGER NOT NULL,
  computer    TEXT    NOT NULL,
  user        TEXT    NOT NULL DEFAULT '',
  run         TEXT    NOT NULL DEFAULT '',
  task        TEXT    NOT NULL DEFAULT '',
  causation   TEXT    NOT NULL DEFAULT '',
  correlation TEXT    NOT NULL DEFAULT '',
  traceparent TEXT    NOT NULL DEFAULT '',
  data        TEXT    NOT NULL DEFAULT '',
  dataref     TEXT    NOT NULL DEFAULT '',
  digest      BLOB    NOT NULL,
  duplicate   INTEGER NOT NULL DEFAULT 0, -- 1: an earlier event has this source and id
  error       TEXT    NOT NULL DEFAULT '' -- why it was not projected; empty when it was
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (source, id) WHERE duplicate = 0;
CREATE INDEX events_by_subject ON events (subject, seq) WHERE subject <> '';
CREATE INDEX events_by_type ON events (type, seq);
CREATE INDEX events_by_run ON events (run, seq) WHERE run <> '';
CREATE INDEX events_by_task ON events (task, seq) WHERE task <> '';
CREATE INDEX events_with_error ON events (seq) WHERE error <> '';

CREATE TABLE computer (
  id        TEXT    PRIMARY KEY,
  name      TEXT    NOT NULL,
  driver    TEXT    NOT NULL,
  isolation TEXT    NOT NULL DEFAULT '',
  version   TEXT    NOT NULL DEFAULT '',
  notes     TEXT    NOT NULL DEFAULT '[]',
  epoch     INTEGER NOT NULL,
  created   TEXT    NOT NULL,
  woken     TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
