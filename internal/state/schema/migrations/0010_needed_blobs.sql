-- The first event that a blob is needed for: without it something the log holds
-- can't be read. 0: what is named is kept elsewhere, such as in a file.
ALTER TABLE blob_refs ADD COLUMN needed INTEGER NOT NULL DEFAULT 0;
