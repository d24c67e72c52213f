-- How long a process counts as there after its last sign of life, in microseconds (0: not
-- known): others can tell by their own clocks that one has died, should the database's go back.
ALTER TABLE bide.member ADD COLUMN lease bigint NOT NULL DEFAULT 0;
-- That a run is taken, parks and ends changes what it is indexed by: hardly a change can use the room.
ALTER TABLE bide.run RESET (fillfactor);
