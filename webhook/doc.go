// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's admission requests.
//
// Enters: AdmissionReviews over HTTPS. Leaves: for Projects and Departments an
// answer that names every wrong field; for pods of governed namespaces, and for
// what makes them, admission; for Extensions who asked and who decided, and whether
// they may; and for each request one structured log line and a measurement.
// [Run] is the composition root; each folder below is one kind of object or one
// side of the work.
//
// It never writes to the cluster, but for the certificate authority in its own
// two webhook configurations, and never waits for another component.
package webhook
