-- How much a checkpoint does not hold, and what .gitignore files keep out of it.
ALTER TABLE checkpoints ADD COLUMN left_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN ignored  TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE checkpoints ADD COLUMN outside  INTEGER NOT NULL DEFAULT 0;
