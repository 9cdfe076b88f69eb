// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes on one machine without containers: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as plain processes
// on loopback.
//
// Enters: Options. Leaves: a Cluster that answers kubectl, Helm and any client,
// with kubeconfigs for its administrator, for users (by certificate) and for
// service accounts (by token), and a process group to which further components
// are added:
//
//	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Config())
//	err = c.Processes().Start(ctx, process.Spec{Name: "webhook", Path: path, Args: args})
//
// A component that crashes is started again. After Stop, and on Linux after a
// kill -9 of this process too, none of its processes and ports are left; of its
// files only what Options.KeepData keeps. Its folder is
// known by a mark, and what a person has put beside its own files there stays.
//
// The package has no nodes: a fake kubelet or kwok brings them. It never opens a port
// beyond 127.0.0.1, and Attach, for a person's own cluster, starts and stops
// nothing there.
package cluster
