-- Removes the mark that this site may lack states, once an operator has brought them. Returns 1, or 0 if the site is not
-- marked.
--
-- KEYS: the hash of the other site.
-- A damaged mark counts.
if (redis.call('HGET', KEYS[1], 'lacks') or '0') == '0' then return 0 end
redis.call('HSET', KEYS[1], 'lacks', '0')
return 1
