-- When a delegated child reported back and how it ended; until then it is pending.
ALTER TABLE links ADD COLUMN reported_at INTEGER;
ALTER TABLE links ADD COLUMN outcome TEXT;
