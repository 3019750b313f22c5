-- What a task made that waits until a person has looked at it, and what they decided.
CREATE TABLE reviews (
  task         TEXT    NOT NULL,
  attempt      INTEGER NOT NULL,
  review       INTEGER NOT NULL,
  run          TEXT    NOT NULL REFERENCES runs (id),
  base         TEXT    NOT NULL,
  work         TEXT    NOT NULL,
  paths        INTEGER NOT NULL,
  reason       TEXT    NOT NULL DEFAULT '',
  asked        TEXT    NOT NULL,
  asked_seq    INTEGER NOT NULL,
  decision     TEXT    NOT NULL DEFAULT '', -- publish, revise or discard; gone when its attempt ended without an answer
  answered_by  TEXT    NOT NULL DEFAULT '',
  chosen       TEXT    NOT NULL DEFAULT '[]',
  comments     TEXT    NOT NULL DEFAULT '[]',
  answered     TEXT    NOT NULL DEFAULT '',
  answered_seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (task, attempt, review)
) STRICT, WITHOUT ROWID;
CREATE INDEX reviews_by_run ON reviews (run, asked_seq);
CREATE INDEX reviews_open ON reviews (asked_seq) WHERE answered_seq = 0;
