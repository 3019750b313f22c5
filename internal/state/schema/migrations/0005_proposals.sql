-- Changes to documents that wait for a user, and how they ended. Nothing wrote
-- the table as 0004 made it.
DROP TABLE proposals;
CREATE TABLE proposals (
  id           TEXT    PRIMARY KEY,
  document     TEXT    NOT NULL REFERENCES documents (id),
  base         INTEGER NOT NULL, -- the revision it was made from; 0: none of them
  author       TEXT    NOT NULL,
  role         TEXT    NOT NULL, -- of the event's source: director, associate or system
  sha256       TEXT    NOT NULL,
  body         TEXT    NOT NULL,
  run          TEXT    NOT NULL DEFAULT '',
  task         TEXT    NOT NULL DEFAULT '',
  time         TEXT    NOT NULL,
  seq          INTEGER NOT NULL,
  status       TEXT    NOT NULL DEFAULT 'open', -- then accepted, dismissed or superseded
  resolved_by  TEXT    NOT NULL DEFAULT '', -- who ended it
  revision     INTEGER NOT NULL DEFAULT 0,  -- that holds an accepted one
  successor    TEXT    NOT NULL DEFAULT '', -- of a superseded one
  resolved     TEXT    NOT NULL DEFAULT '',
  resolved_seq INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX proposals_by_document ON proposals (document, seq);
CREATE INDEX proposals_open ON proposals (document, seq) WHERE status = 'open';
