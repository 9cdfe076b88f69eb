// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package partition partitions a node's GPUs into MIG instances. No other package creates or
// destroys instances.
//
// [Engine.Apply] takes the desired layouts and the holders of the GPUs' devices, and returns an
// [Outcome] for each GPU: partitioned as requested, or as before and why. It announces every write
// to the driver in a [Journal], so that the engine completes or undoes an unfinished change after a
// crash.
//
// The decision (decide.go, rollback.go) is pure. The engine never destroys an instance in use or a
// foreign one, and never begins a change that it cannot finish. It writes nothing to a GPU that
// does not answer. The journal never guesses: it sets a damaged file, or one of another version or
// node, aside and then counts no instance as Sluice's own.
package partition
