// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// askTimeout is how long the kubelet, and the API server, may take to answer.
const askTimeout = 5 * time.Second

// maxAnswer is as large, in bytes, as an answer of the kubelet may be; kubelets
// themselves allow 16 MiB.
const maxAnswer = 16 << 20

// Kubelet is what the node's kubelet says about devices.
type Kubelet struct {
	connection *grpc.ClientConn
	client     podresourcesv1.PodResourcesListerClient
}

// NewKubelet asks on a socket. It connects when it is asked, and again after the
// kubelet was started anew.
func NewKubelet(socket string) (*Kubelet, error) {
	// Dialled by ourselves: a path may have characters that a URL may not.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	connection, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		// A kubelet that is started anew is to be found at once, not after a minute.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("kubelet at %s: %w", socket, err)
	}
	return &Kubelet{connection: connection, client: podresourcesv1.NewPodResourcesListerClient(connection)}, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.connection.Close() }

// Ask is who holds what right now.
func (k *Kubelet) Ask(ctx context.Context) (Holdings, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// What is offered first: a device that is given meanwhile is then seen as given.
	offered, err := k.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return Holdings{}, fmt.Errorf("asking the kubelet for its devices: %w", err)
	}
	held, err := k.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return Holdings{}, fmt.Errorf("asking the kubelet which pod has which device: %w", err)
	}
	return holdings(offered, held)
}
