// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes on one machine without containers: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as processes on 127.0.0.1.
// Start returns a Cluster with kubeconfigs for its administrator, for users and for service
// accounts, and a process group to which callers add components. The cluster restarts
// crashed components. After Stop, and on Linux also after a SIGKILL of this process, no
// process and no port of it remains. The cluster has no nodes: package fakekubelet or kwok
// adds them.
//
// kwokctl v0.8.0 (binary runtime) does not replace this package. It was tried by hand, with
// the pinned programs and with stand-ins for them: it takes minutes to build, too long for a
// test. It binds loopback and passes arguments on, but lacks properties that tests require:
//   - the components end with their owner: TestTemporaryClusterRemovedAfterOwnerKilled
//   - killed components restart: TestCluster/restarts_each_killed_process
//   - concurrent starts use distinct ports: TestConcurrentReservationsAreDistinct
//   - other files and reused process IDs are left alone: TestRemoveKeepsOtherFiles, process.TestReapLeftovers
//   - etcd has its own authority, and its own certificates: TestCluster/gives_only_the_API_server_access_to_etcd
package cluster
