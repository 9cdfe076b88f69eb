// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quotas judges the quotas of projects and departments, and changes of them.
//
// Enters: a Project or a Department before and after a change, with those beside
// it and what is in use. Leaves: the fields in which it asks for more than there
// is, with the figures, and warnings of what is allowed but will be felt.
//
// It judges what somebody asks for, never what stands already: who changes
// something else, or asks for less, is not refused for an excess of old.
package quotas
