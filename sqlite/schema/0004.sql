-- Of a message with a key: a fingerprint of what was asked for.
ALTER TABLE inbox ADD COLUMN print TEXT;
