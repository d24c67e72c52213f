-- Of a message with a key: a fingerprint of what was asked for.
ALTER TABLE bide.inbox ADD COLUMN print text NOT NULL DEFAULT '';
