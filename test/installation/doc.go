// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation tests what is installed: the pods of the overlays against Pod Security and their own
// programs, the reach of admission, CEL for the oldest Kubernetes, and the Helm chart, which is generated here from
// the kustomizations of package manifests. Real Helm installs it on the embedded cluster.
package installation
