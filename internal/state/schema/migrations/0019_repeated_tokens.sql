-- Of the tokens of a call's request, those that its service had kept, and those with which the same loop's request before began.
ALTER TABLE usage ADD COLUMN tokens_cached INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN tokens_repeated INTEGER NOT NULL DEFAULT 0;
