-- What the loops of a run wait for, and the model that answers in the place of the run's own.
ALTER TABLE runs ADD COLUMN waits TEXT NOT NULL DEFAULT '[]';
ALTER TABLE runs ADD COLUMN fallback TEXT NOT NULL DEFAULT '';
