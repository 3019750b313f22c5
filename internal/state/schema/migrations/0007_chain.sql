-- The link to the event before it: with it a row is the event as the log stores it.
ALTER TABLE events ADD COLUMN prev TEXT NOT NULL DEFAULT '';
