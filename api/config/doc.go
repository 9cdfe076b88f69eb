// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the one configuration file that each of Sluice's
// binaries has.
//
// Enters: a YAML file with apiVersion and kind. Leaves: a typed, defaulted and
// validated configuration, or one error that names every wrong field with its
// value and what is allowed. [Common] is the part that all binaries share.
//
// It is strict: an unknown or repeated field is an error, never ignored. It
// never reads the environment and never merges files.
package config
