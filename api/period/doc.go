// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package period parses the times in API objects: a Duration ("48h", "10d") is an exact
// length, a Period ("P6M") is a calendar step, and a Date ("2026-12-19") is a day.
//
// Values keep the text from which they were parsed. Errors name the text and what is
// allowed. The package reads no clock and no file, and assumes no time zone: callers
// pass the location in which days begin.
//
// +kubebuilder:object:generate=true
package period
