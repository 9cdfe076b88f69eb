// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes on one machine without containers: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as processes on 127.0.0.1.
// Start returns a Cluster with kubeconfigs for its administrator, for users and for service
// accounts, and a process group to which callers add components. The cluster restarts
// crashed components. After Stop, and on Linux also after a SIGKILL of this process, no
// process and no port of it remains. The cluster has no nodes: package fakekubelet or kwok
// adds them. Attach connects to an existing cluster instead, and starts and stops nothing
// there.
package cluster
