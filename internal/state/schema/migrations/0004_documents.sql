-- Living documents, and the library they cite.
CREATE TABLE documents (
  id       TEXT    PRIMARY KEY,
  title    TEXT    NOT NULL,
  path     TEXT    NOT NULL, -- where it is mirrored, under artifacts/
  revision INTEGER NOT NULL,
  run      TEXT    NOT NULL DEFAULT '',
  created  TEXT    NOT NULL,
  updated  TEXT    NOT NULL,
  seq      INTEGER NOT NULL -- of the newest revision
) STRICT, WITHOUT ROWID;
CREATE INDEX documents_by_path ON documents (path);
CREATE INDEX documents_by_seq ON documents (seq);

CREATE TABLE revisions (
  document  TEXT    NOT NULL REFERENCES documents (id),
  revision  INTEGER NOT NULL,
  base      INTEGER NOT NULL,
  title     TEXT    NOT NULL,
  path      TEXT    NOT NULL,
  author    TEXT    NOT NULL,
  role      TEXT    NOT NULL, -- of the event's source: user, director, associate or system
  sha256    TEXT    NOT NULL,
  body      TEXT    NOT NULL,
  run       TEXT    NOT NULL DEFAULT '',
  task      TEXT    NOT NULL DEFAULT '',
  causation TEXT    NOT NULL DEFAULT '',
  time      TEXT    NOT NULL,
  seq       INTEGER NOT NULL,
  PRIMARY KEY (document, revision)
) STRICT;

-- No event fills proposals, sources and chunks yet: a change that would become a proposal
-- is answered as a conflict, and nothing is parsed into the library.
CREATE TABLE proposals (
  id       TEXT    PRIMARY KEY,
  document TEXT    NOT NULL REFERENCES documents (id),
  base     INTEGER NOT NULL,
  author   TEXT    NOT NULL,
  body     TEXT    NOT NULL,
  status   TEXT    NOT NULL,
  seq      INTEGER NOT NULL
) STRICT;

CREATE TABLE sources (
  id     TEXT    PRIMARY KEY,
  title  TEXT    NOT NULL,
  origin TEXT    NOT NULL,
  sha256 TEXT    NOT NULL,
  seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE VIRTUAL TABLE chunks USING fts5 (body, source UNINDEXED, ordinal UNINDEXED);

CREATE TABLE citations (
  task    TEXT    NOT NULL REFERENCES tasks (id),
  attempt INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  source  TEXT    NOT NULL,
  excerpt TEXT    NOT NULL,
  seq     INTEGER NOT NULL,
  PRIMARY KEY (task, attempt, ordinal)
) STRICT, WITHOUT ROWID;
