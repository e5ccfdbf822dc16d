// A program with the types that openapi-typescript makes from the OpenAPI document.

import type { components, operations, paths } from "onceward/openapi";

type Job = components["schemas"]["Job"];
type Sent = operations["messages_send"]["responses"][202]["content"]["application/json"];
type Problem = operations["jobs_get"]["responses"][404]["content"]["application/problem+json"];

const message: components["schemas"]["Message"] = { body: { item: "lamp" }, key: "order-1042" };
const settings: components["schemas"]["QueueSettings"] = { paused: true };
const path: keyof paths = "/v1/inbox/{queue}";
const asked: operations["jobs_get"]["parameters"] = { path: { id: "01" }, query: { wait_ms: 5000 } };

export function state(job: Job, sent: Sent): string {
  const ended: number | undefined = job.ended_ms;
  return `${job.state} ${ended ?? ""} ${sent.id}`;
}

export function code(problem: Problem): string {
  return problem.retry ? "retry" : problem.code;
}

// @ts-expect-error: a message without a body
const empty: components["schemas"]["Message"] = { key: "order-1042" };
// @ts-expect-error: a path that does not exist
const nowhere: keyof paths = "/v1/nowhere";
// @ts-expect-error: a state that does not exist
const found: operations["jobs_list"]["parameters"]["query"] = { state: "lost" };

export default [message, settings, path, asked, empty, nowhere, found];
