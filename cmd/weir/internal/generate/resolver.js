// The AppSync resolver (APPSYNC_JS) of every field that the function serves.
import { util } from '@aws-appsync/utils'

export function request(ctx) {
  return { operation: 'Invoke', payload: ctx }
}

export function response(ctx) {
  if (ctx.error) {
    util.error(ctx.error.message, ctx.error.type)
  }
  const { data, errorMessage, errorType, errorInfo } = ctx.result
  if (errorMessage) {
    util.error(errorMessage, errorType, data, errorInfo)
  }
  return data
}
