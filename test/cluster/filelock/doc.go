// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filelock makes sure that one process at a time works in a folder.
//
// A path enters; a lock that the kernel drops when its holder ends, however it
// ends, leaves. The holder's process id stands in the file, for the message to
// whoever comes second. The package never waits without saying so, never takes
// a lock from its holder, and never removes the file: the next one needs it.
package filelock
