"""The atomic operations of the Redis run store: its Lua scripts, and the names of its keys.

:mod:`usechat.runs.redis.store` explains the data model. All keys of a script belong to one chat.
"""

from typing import Final
from zlib import crc32

import msgspec

from usechat.runs.run import RunInfo

__all__ = [
    "ADOPT",
    "ANY",
    "APPEND",
    "CHECK",
    "CLAIM",
    "COUNT",
    "DECLARE_LOST",
    "END",
    "FOLLOW",
    "HOLD",
    "IDLE_TURNS",
    "IS_READ",
    "JOIN_GROUP",
    "KEEP_TURNS",
    "LATEST",
    "PARK",
    "RENEW",
    "RESTART",
    "SEAL",
    "STOP",
    "TURN_STATISTICS",
    "WAITING",
    "WAITING_TURNS",
    "Keys",
]

ANY: Final = "*"
"""The value of ``after`` that accepts any last run; no run has this id."""
WAITING: Final = "queue"
"""The owner of a run whose turn waits for an agent process; no worker has this id."""
SEAL: Final = "18446744073709551615-18446744073709551615"
"""The id of a log's last entry, the highest there is: XADD after it is an error ("exhausted the last possible ID")."""


TAGS: Final = 64
"""How many hash tags there are. Chats share them, because in a cluster XREAD waits for keys of one slot only: a worker
has one blocking connection per tag, not per run that it reads. CRC16 puts them on 64 slots, spread evenly."""


class Keys(msgspec.Struct, frozen=True):
    """The names of keys. All keys of a chat share a hash tag, so that they are in one slot of a cluster."""

    prefix: str

    def tag(self, chat_id: str) -> str:
        """Return the hash tag of a chat's keys."""
        return str(crc32(chat_id.encode("utf-8", "surrogatepass")) % TAGS)

    def chat(self, chat_id: str) -> str:
        """Return the key of a chat's hash, which describes its last run."""
        return f"{self.prefix}:{{{self.tag(chat_id)}}}:{chat_id}"

    def log(self, info: RunInfo) -> str:
        """Return the key of the stream of a run's frames."""
        return f"{self.chat(info.chat_id)}:log:{info.run_id}"

    def readers(self, info: RunInfo) -> str:
        """Return the key of the sorted set of workers that read a run, by the time until which that is certain."""
        return f"{self.chat(info.chat_id)}:readers:{info.run_id}"

    def quota(self, key: str) -> str:
        """Return the key of a counter of :mod:`usechat.runs.quotas`."""
        return f"{self.prefix}:quota:{key}"

    def state(self, handle: str) -> str:
        """Return the key of the state of a paused agent."""
        return f"{self.prefix}:state:{handle}"

    def turns(self, queue: str) -> str:
        """Return the key of a stream of turns that wait for an agent process, or are answered by one."""
        return f"{self.prefix}:turns:{{{queue}}}"

    def inbox(self, worker: str, tag: str = "") -> str:
        """Return the key of the stream of requests to a worker; with ``tag`` of those to its listener for that tag."""
        return f"{self.prefix}:{{{tag}}}:worker:{worker}" if tag else f"{self.prefix}:worker:{worker}"

    def check(self, tag: str) -> str:
        """Return a key that is written to find out whether Redis accepts writes."""
        return f"{self.prefix}:{{{tag}}}:check"


_COMMON: Final = f"""
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function text(number)
  return string.format('%.0f', number)
end
local function seal(log, state, remember)
  local written = redis.pcall('XADD', log, 'NOMKSTREAM', '{SEAL}', 'end', state)
  redis.call('PEXPIRE', log, remember)
  return type(written) == 'string'
end
-- Declare a run lost. Returns how many milliseconds it lasted, or false if its end was recorded before.
local function declare_lost(chat, log, run, remember)
  local first = redis.call('XRANGE', log, '0-1', '0-1')[1]
  local found = redis.call('HMGET', chat, 'run', 'state')
  local is_news = found[1] == run and found[2] == 'running'
  if is_news then
    redis.call('HSET', chat, 'state', 'lost')
    redis.call('PEXPIRE', chat, remember)
  end
  is_news = seal(log, 'lost', remember) or is_news
  return is_news and now() - (first and tonumber(first[2][4]) or now())
end
-- Return the chat's last run, its state and the end of its lease. A run whose lease has expired is declared lost;
-- then the fourth value is how many milliseconds it lasted.
local function last_run(chat, remember)
  local found = redis.call('HMGET', chat, 'run', 'state', 'lease')
  if found[2] == 'running' and tonumber(found[3]) <= now() then
    return found[1], 'lost', 0, declare_lost(chat, chat .. ':log:' .. found[1], found[1], remember)
  end
  return found[1], found[2], tonumber(found[3] or 0), false
end
"""

CLAIM: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, info, owner, continued, lease, keep, remember, after = unpack(ARGV)
local active, state, _, lost = last_run(chat, remember)
if active == run then return {{false, false}} end  -- a retry: the first reply did not arrive
local known = redis.call('HGET', chat, 'info')
if state == 'running' then return {{{{known, state}}, false}} end
if active and after ~= '{ANY}' and active ~= after then
  return {{{{known, state}}, lost and {{known, 'lost', lost}}}}
end
-- HSET first: Redis checks its memory limit at the first write of a script only.
redis.call('HSET', chat, 'run', run, 'info', info, 'state', 'running', 'owner', owner,
  'continued', continued, 'lease', text(now() + lease))
redis.call('HDEL', chat, 'stop')
redis.call('XADD', log, '0-1', 'run', run, 'began', text(now()))
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', log, keep)
return {{false, lost and {{known, 'lost', lost}}}}
"""
"""Make a run the chat's active one.

Returns two values. The first is info and state of the run that prevents it: the active one, or the last one if that is
not ``after``; false on success. The second is info, state and milliseconds of a run that this call declared lost.
"""

RENEW: Final = """
local owner, keep = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local states = {}
for number = 1, #KEYS / 2 do
  local chat, log, run, lease = KEYS[2 * number - 1], KEYS[2 * number], ARGV[2 * number + 1], ARGV[2 * number + 2]
  local found = redis.call('HMGET', chat, 'run', 'state', 'owner', 'stop')
  if found[1] ~= run or found[2] ~= 'running' or found[3] ~= owner or redis.call('EXISTS', log) == 0 then
    states[number] = 'lost'
  else
    redis.call('HSET', chat, 'lease', string.format('%.0f', now + lease))
    redis.call('PEXPIRE', chat, keep)
    redis.call('PEXPIRE', log, keep)
    states[number] = found[4] or 'running'
  end
end
return states
"""
"""Renew the leases of runs of one owner. Returns ``lost``, ``stop`` or ``running`` for each."""

APPEND: Final = """
local frames, numbers = unpack(ARGV)
local sizes = string.gmatch(numbers, '%d+')
local first = 1
local refused = {}
for place, log in ipairs(KEYS) do
  local number, size = sizes(), tonumber(sizes())
  local piece = string.sub(frames, first, first + size - 1)
  first = first + size
  local written = redis.pcall('XADD', log, 'NOMKSTREAM', number .. '-0', 'frames', piece)
  if not written then
    refused[#refused + 1] = {place, ''}
  elseif type(written) == 'table' then
    refused[#refused + 1] = {place, written.err}
  end
end
return refused
"""
"""Append an entry to each of many logs: given are the frames of all, and for each log the number of its entry and the
size of its frames. Few large arguments cost the client less than many small ones. Returns the place of each log that
refused its entry, and the error; "" if the log is gone.
"""

CHECK: Final = """
return redis.call('SET', KEYS[1], '', 'PX', 10000)
"""
"""Write something: fails where scripts or writes are refused."""

END: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, owner, info, state, remember, last = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'owner')
if found[1] == run and found[2] == 'running' and found[3] == owner then
  redis.call('HSET', chat, 'info', info, 'state', state)
  redis.call('PEXPIRE', chat, remember)
end
local written = redis.pcall('XADD', log, 'NOMKSTREAM', '{SEAL}', 'end', state, 'last', last)
redis.call('PEXPIRE', log, remember)
if type(written) == 'string' then return 'ended' end
local final = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
-- A retry, because the first reply did not arrive: only owners write the field 'last'.
return final and final[2][3] == 'last' and 'ended' or 'lost'
"""
"""End a run, called by its owner. Returns ``ended``, or ``lost`` if another worker ended it or its log is gone."""

DECLARE_LOST: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, remember = unpack(ARGV)
if declare_lost(chat, log, run, remember) then return 'lost' end
local final = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
if final then return final[2][3] == 'last' and final[2][2] end
return redis.call('HGET', chat, 'run') ~= run and 'lost'
"""
"""Declare a run lost, called by an owner that gave it up.

Returns the state to report: ``lost``, or the owner's own end if that had been written after all. Returns nil if another
worker has reported the loss, or still can.
"""

LATEST: Final = f"""{_COMMON}
local run, state, _, lost = last_run(KEYS[1], ARGV[1])
return run and {{redis.call('HGET', KEYS[1], 'info'), state, lost}}
"""
"""Return info and state of the chat's last run; and if this call declared it lost, how many milliseconds it lasted."""

FOLLOW: Final = f"""{_COMMON}
local chat, log, readers = KEYS[1], KEYS[2], KEYS[3]
local run, reader, lease, remember = unpack(ARGV)
if redis.call('EXISTS', log) == 0 then return {{-1, false}} end
if redis.call('HGET', chat, 'run') ~= run then return {{0, declare_lost(chat, log, run, remember)}} end
local _, state, lease_end, lost = last_run(chat, remember)
if state ~= 'running' then
  seal(log, state, remember)
  return {{0, lost}}
end
if reader ~= '' then
  redis.call('ZADD', readers, text(now() + 2 * lease), reader)
  redis.call('PEXPIRE', readers, 2 * lease)
end
return {{math.min(lease_end - now(), tonumber(lease)), false}}
"""
"""Register a worker as a reader of a run, unless its name is "", and check the owner's lease.

Returns the milliseconds until the next check (0 if the log has an end, -1 if the log is gone); and if this call
declared the run lost, how many milliseconds it lasted. The next check is due when the owner's lease expires, and at the
latest after one lease time of the reader: its registration expires, and a run that waits for an agent process has a
long lease, until that process owns it.
"""

IS_READ: Final = f"""{_COMMON}
return redis.call('ZCOUNT', KEYS[1], text(now()), '+inf')
"""
"""Return how many workers read a run."""

STOP: Final = """
local found = redis.call('HMGET', KEYS[1], 'run', 'state', 'owner')
if found[1] ~= ARGV[1] or found[2] ~= 'running' then return false end
if ARGV[2] == 'stop' then redis.call('HSET', KEYS[1], 'stop', 'stop') end
return found[3]
"""
"""Return the owner of a running run; a ``stop`` without conditions is also marked in the hash."""

COUNT: Final = """
local total = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {total, redis.call('PTTL', KEYS[1])}
"""
"""Add to a counter that expires. Returns its sum and the milliseconds until it expires."""

HOLD: Final = f"""{_COMMON}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now()))
redis.call('ZADD', KEYS[1], text(now() + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
"""
"""Add a holder who expires. Returns how many there are."""

PARK: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, patience, keep, entry = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'owner')
if found[1] ~= run or found[2] ~= 'running' or found[3] ~= '{WAITING}' then return false end
redis.call('HSET', chat, 'lease', text(now() + patience), 'entry', entry)
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', log, keep)
return 'waiting'
"""
"""Let a run wait for an agent process, after its turn was queued as ``entry``. Returns nil if one has taken it."""

ADOPT: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, owner, lease, keep = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'owner', 'lease', 'stop', 'entry')
if found[1] ~= run or found[2] ~= 'running' or redis.call('EXISTS', log) == 0 then return false end
if found[3] ~= owner and (found[3] ~= '{WAITING}' or tonumber(found[4]) <= now()) then return false end
redis.call('HSET', chat, 'owner', owner, 'lease', text(now() + lease))
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', log, keep)
return {{found[5] or 'running', found[6]}}
"""
"""Make a worker the owner of a run whose turn waits; it can be repeated by that worker.

Returns ``running`` or ``stop``, and the entry in the queue if that is known; nil if the turn does not wait any more.
"""

RESTART: Final = f"""{_COMMON}
local chat, log, new_log = KEYS[1], KEYS[2], KEYS[3]
local run, new_run, info, owner, lease, keep, remember, stale = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'lease', 'stop')
local left = tonumber(found[3] or 0) - now()
if found[1] ~= run or found[2] ~= 'running' or found[4] or left <= 0 or left > tonumber(stale) then return false end
local first = redis.call('XRANGE', log, '0-1', '0-1')[1]
if not first then return false end
seal(log, 'lost', remember)
redis.call('HSET', chat, 'run', new_run, 'info', info, 'owner', owner, 'lease', text(now() + lease))
redis.call('XADD', new_log, '0-1', 'run', new_run, 'began', text(now()))
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', new_log, keep)
return now() - tonumber(first[2][4])
"""
"""Replace a run whose owner has died with a new one of the same turn.

The old log is sealed, so that an owner which was only paused cannot write any more. Returns how many milliseconds the
old run lasted. Returns nil if it has ended, was asked to stop, or has a lease that lasts longer than ``stale``
milliseconds: then its owner lives.
"""

_WAITING_TURNS: Final = """
local function waiting(queue, group)
  local pending = redis.pcall('XPENDING', queue, group)
  return redis.call('XLEN', queue) - (pending.err and 0 or pending[1])
end
"""

WAITING_TURNS: Final = f"""{_WAITING_TURNS}
return waiting(KEYS[1], ARGV[1])
"""
"""Return how many turns of a queue wait; there need not be a group yet."""

IDLE_TURNS: Final = """
local found = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[2], '-', '+', ARGV[3])
return found.err and {} or found
"""
"""Return entry, consumer, idle milliseconds and deliveries of the turns that were not claimed again for that time."""

TURN_STATISTICS: Final = f"""{_COMMON}{_WAITING_TURNS}
local function field(flat, name)
  for i = 1, #flat, 2 do if flat[i] == name then return flat[i + 1] end end
end
local queue, group = KEYS[1], ARGV[1]
local groups = redis.pcall('XINFO', 'GROUPS', queue)
local delivered, running = '0-0', {{}}
if not groups.err and groups[1] then
  delivered = field(groups[1], 'last-delivered-id')
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', queue, group)) do
    table.insert(running, {{field(consumer, 'name'), field(consumer, 'pending'), field(consumer, 'idle')}})
  end
end
local oldest = redis.call('XRANGE', queue, '(' .. delivered, '+', 'COUNT', 1)[1]
local age = oldest and now() - tonumber(string.match(oldest[1], '^%d+')) or 0
return {{waiting(queue, group), age, running}}
"""
"""Return the waiting turns, the milliseconds that the oldest waits, and name, turns and idle time of each consumer."""

JOIN_GROUP: Final = """
local queue, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local made = redis.pcall('XGROUP', 'CREATE', queue, group, '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
-- Before 7.2 Redis lists a consumer only once XREADGROUP has given it an entry: an idle process would be invisible.
return redis.call('XGROUP', 'CREATECONSUMER', queue, group, consumer)
"""
"""Add a consumer to the group of a queue, unless it is there; a new group begins with the first turn."""

KEEP_TURNS: Final = """
local queue, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local claim = {'XCLAIM', queue, group, consumer, 0}
for i = 3, #ARGV do table.insert(claim, ARGV[i]) end
table.insert(claim, 'JUSTID')
local kept = redis.pcall(unpack(claim))
return kept.err and 0 or #kept
"""
"""Claim entries again, which resets their idle time."""
