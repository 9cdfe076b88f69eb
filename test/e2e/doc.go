// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Sluice end to end. It builds the binaries from the source tree, starts
// clusters with `sluice up`, and uses them through the API server and the command line, as
// users do. The tests stop every process that they start and never use the internals of a
// component.
package e2e
