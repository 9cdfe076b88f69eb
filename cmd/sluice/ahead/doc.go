// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ahead finds what lies ahead in policy time.
//
// Enters: the WorkloadClocks, Notices, Projects and Departments of a cluster, and
// the present instant. Leaves: the ends, warnings, mails and steps that are
// recorded there and have not come, in order.
//
// It never decides anything: what is not recorded does not lie ahead.
package ahead
