// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/test/cluster/fakekubelet"
)

// maxSocketPath is as long, in bytes, as the path of a Unix socket may be.
const maxSocketPath = 107

// socketOf is where the fake kubelet of a node serves PodResources.
func socketOf(dir, node string) string {
	return filepath.Join(dir, "nodes", node, "pod-resources", "kubelet.sock")
}

// maxDir is as long, in bytes, as the folder of a cluster with these nodes may be.
func maxDir(list []fakekubelet.Node) int {
	longest := 0
	for _, node := range list {
		longest = max(longest, len(socketOf("", node.Name)))
	}
	return maxSocketPath - len("/") - longest
}

// kubeletsServe is ready when each node's kubelet answers, which it does once
// its Node is registered and its pods are known.
func kubeletsServe(dir string, list []fakekubelet.Node) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, node := range list {
			if err := askKubelet(ctx, socketOf(dir, node.Name)); err != nil {
				return fmt.Errorf("the kubelet of %s: %w", node.Name, err)
			}
		}
		return nil
	}
}

func askKubelet(ctx context.Context, socket string) error {
	// Dialled by ourselves: a path may have characters that a URL may not.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	connection, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = podresourcesv1.NewPodResourcesListerClient(connection).List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	return err
}
