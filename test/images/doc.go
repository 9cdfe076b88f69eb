// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images tests the Dockerfile and the workflows of a release. No image can be built without a
// container engine, so the tests parse the Dockerfile with BuildKit's own parser and run the commands of
// its build stage.
package images
