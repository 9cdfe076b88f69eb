// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dependency finds which parts of input the rules of a compiled Rego module
// read.
//
// It takes a compiled module and the references of some of its rules, and follows
// values of input through helper rules, functions and libraries. It returns the paths
// that the rules name ([Footprint]), and the parts of input that decide their result
// ([Segment]). Two inputs with equal segments have equal results, so package engine
// uses segments as cache keys.
//
// The analysis may report a part that the rules never read. It never omits one that
// they do read. It evaluates nothing.
package dependency
