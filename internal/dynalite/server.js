// dynalite with what weir's tests need and dynalite 4.0.0 lacks:
//  - ReturnValuesOnConditionCheckFailure on single-item writes,
//  - UpdateTimeToLive and DescribeTimeToLive (remembered only: nothing expires).
//
// usage: node server.js [--plain] [--path DIR]
//   --plain     leave ReturnValuesOnConditionCheckFailure out, as old servers do
//   --path DIR  keep the tables on disk
//
// It listens on a free port of 127.0.0.1, prints "listening PORT", and ends when
// its standard input closes, so that it never outlives the test that started it.
'use strict'

const fs = require('fs')
const path = require('path')
const crc32 = require('buffer-crc32')
const dynalite = require('dynalite')
const db = require('dynalite/db')

const MAX_BODY = 1 << 20

function usage (problem) {
  console.error(problem + '; usage: node server.js [--plain] [--path DIR]')
  process.exit(2)
}

let plain = false
let dir = ''
for (let args = process.argv.slice(2); args.length > 0;) {
  const arg = args.shift()
  if (arg === '--plain') plain = true
  else if (arg === '--path') dir = args.shift() || usage('--path needs a folder')
  else usage('unknown argument ' + arg)
}

if (!plain) {
  for (const op of ['putItem', 'updateItem', 'deleteItem']) {
    require('dynalite/validations/' + op).types.ReturnValuesOnConditionCheckFailure = { type: 'String', enum: ['ALL_OLD', 'NONE'] }
  }
  const checkConditional = db.checkConditional
  db.checkConditional = function (data, item) {
    const failed = checkConditional(data, item)
    if (failed && item && data.ReturnValuesOnConditionCheckFailure === 'ALL_OLD') failed.body.Item = item
    return failed
  }
}

const options = { createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 }
if (dir) options.path = path.join(dir, 'tables')
// dynalite does not hand out its store, but makes it through db.create.
let store
const create = db.create
db.create = (o) => { store = create(o); return store }
const server = dynalite(options)
server.keepAliveTimeout = 0 // no connection is closed: a request that meets that fails

const ttlFile = dir && path.join(dir, 'ttl.json')
const ttl = new Map(ttlFile && fs.existsSync(ttlFile) ? JSON.parse(fs.readFileSync(ttlFile, 'utf8')) : [])

function reply (res, status, value) {
  const body = JSON.stringify(value)
  res.writeHead(status, {
    'Content-Type': 'application/x-amz-json-1.0',
    'Content-Length': Buffer.byteLength(body),
    'x-amz-crc32': crc32.unsigned(body)
  })
  res.end(body)
}

function fail (res, type, message) {
  reply(res, 400, { __type: 'com.amazonaws.dynamodb.v20120810#' + type, message })
}

function timeToLive (operation, body, res) {
  let q
  try {
    q = JSON.parse(body)
  } catch {
    return fail(res, 'SerializationException', 'the body is not JSON')
  }
  if (!q || typeof q.TableName !== 'string') return fail(res, 'ValidationException', 'TableName must not be null')
  store.getTable(q.TableName, false, (err, table) => {
    if (err) return err.statusCode ? reply(res, err.statusCode, err.body) : reply(res, 500, { __type: 'InternalServerError', message: String(err) })
    const id = q.TableName + ' ' + table.TableId // a table made anew begins without
    const known = ttl.get(id)
    if (operation === 'DescribeTimeToLive') {
      return reply(res, 200, {
        TimeToLiveDescription: known && known.Enabled
          ? { AttributeName: known.AttributeName, TimeToLiveStatus: 'ENABLED' }
          : { TimeToLiveStatus: 'DISABLED' }
      })
    }
    const want = q.TimeToLiveSpecification
    if (!want || typeof want.Enabled !== 'boolean' || typeof want.AttributeName !== 'string' || want.AttributeName === '') {
      return fail(res, 'ValidationException', 'TimeToLiveSpecification needs Enabled and AttributeName')
    }
    if (Boolean(known && known.Enabled) === want.Enabled) {
      return fail(res, 'ValidationException', 'TimeToLive is already ' + (want.Enabled ? 'enabled' : 'disabled'))
    }
    ttl.set(id, { AttributeName: want.AttributeName, Enabled: want.Enabled })
    if (ttlFile) fs.writeFileSync(ttlFile, JSON.stringify([...ttl]))
    reply(res, 200, { TimeToLiveSpecification: want })
  })
}

const inner = server.listeners('request')[0]
server.removeAllListeners('request')
server.on('request', (req, res) => {
  const operation = (req.headers['x-amz-target'] || '').split('.')[1]
  if (operation !== 'UpdateTimeToLive' && operation !== 'DescribeTimeToLive') return inner(req, res)
  const parts = []
  let size = 0
  req.on('data', (part) => {
    size += part.length
    if (size <= MAX_BODY) parts.push(part)
  })
  req.on('end', () => {
    if (size > MAX_BODY) return fail(res, 'ValidationException', 'the body is too long')
    if (!req.headers.authorization) return fail(res, 'MissingAuthenticationTokenException', 'Request is missing Authentication Token')
    timeToLive(operation, Buffer.concat(parts).toString('utf8'), res)
  })
})

process.stdin.on('end', () => process.exit(0)).on('error', () => process.exit(0)).resume()
server.listen(0, '127.0.0.1', () => console.log('listening ' + server.address().port))
