// A member of a consumer group with kafkajs, and its admin calls, for group_kafkajs.py. Members print what
// group_story.py reads; `admin` prints the result of one call as JSON.
//
// usage: node group_kafkajs.js member OPTIONS | admin BOOTSTRAP CALL ARGUMENT
const { Kafka, logLevel } = require('kafkajs')

const now = () => Number(process.hrtime.bigint()) / 1e9

function say(event, fields) {
  process.stdout.write(JSON.stringify({ t: now(), e: event, ...fields }) + '\n')
}

function connect(bootstrap, clientId) {
  return new Kafka({ clientId, brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
}

async function member(options) {
  const consumer = connect(options.bootstrap, options.name).consumer({
    groupId: options.group,
    sessionTimeout: options.session_ms,
    heartbeatInterval: options.heartbeat_ms,
    rebalanceTimeout: 15000,
    maxWaitTimeInMs: 200,
  })
  let owned = new Set()
  const give = () => {
    if (owned.size > 0) say('revoked', { parts: [...owned] })
    owned = new Set()
  }
  const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events
  consumer.on(REBALANCING, give)
  consumer.on(GROUP_JOIN, ({ payload }) => {
    give()
    owned = new Set(payload.memberAssignment[options.topic] || [])
    say('assigned', { parts: [...owned] })
  })
  consumer.on(CRASH, ({ payload }) => {
    if (payload.restart) return
    say('failed', { code: payload.error.code, text: String(payload.error) })
    process.exit(1)
  })
  let asked = false
  await consumer.connect()
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      const partition = batch.partition
      if (asked || !isRunning() || isStale() || !owned.has(partition)) return
      let next
      for (const message of batch.messages) {
        say('read', { p: partition, o: Number(message.offset) })
        next = Number(message.offset) + 1
      }
      if (next === undefined) return
      await consumer.commitOffsets([{ topic: batch.topic, partition, offset: String(next) }])
      say('committed', { p: partition, o: next })
      resolveOffset(String(next - 1))
      await heartbeat()
    },
  })
  process.stdin.once('data', async () => {
    asked = true
    await consumer.stop()
    give()
    await consumer.disconnect()
    process.exit(0)
  })
  process.stdin.once('end', () => asked || process.exit(1))
}

async function admin(bootstrap, call, argument) {
  const client = connect(bootstrap, 'admin').admin()
  await client.connect()
  let result
  try {
    result = await client[call](argument)
  } catch (error) {
    result = { failed: (error.groups || []).map(group => group.errorCode), text: String(error) }
  }
  await client.disconnect()
  process.stdout.write(JSON.stringify(result === undefined ? null : result) + '\n')
}

const [mode, ...rest] = process.argv.slice(2)
if (mode === 'member') {
  member(JSON.parse(rest[0]))
} else {
  admin(rest[0], rest[1], JSON.parse(rest[2]))
}
