// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package period holds the three ways in which people write time in Sluice's
// objects: a Duration ("48h", "10d") is an exact length, a Period ("P6M") is a
// step in the calendar, and a Date ("2026-12-19") is a day of it.
//
// What enters is text that a person wrote. What leaves is a value that was
// checked once and prints as the very text that came in, or an error that
// names the text and says what is allowed.
//
// The package never asks what time it is, never reads a file and never guesses
// a time zone: the caller says where the days begin.
//
// +kubebuilder:object:generate=true
package period
