-- What a message refers to is captured when it is submitted, and waits with it.
ALTER TABLE runs ADD COLUMN context BLOB;
