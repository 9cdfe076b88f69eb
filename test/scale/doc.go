// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale runs the lifecycle binary against a large cluster: the in-memory API server
// of package stubapi with a fleet of jobs and pods, or, for mail, a real API server and an
// SMTP server.
//
// The tests use a small fleet and check what lifecycle does and what it does not write. The
// benchmarks use a large fleet and report memory, the delay of stops and starts, and the rate
// of mails. No test fails because of a duration. The figures include the cost of the stub,
// which shares the machine, and say nothing about the speed of a real API server.
package scale
