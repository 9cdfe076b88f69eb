// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"sluice.dev/cmd/sluice/workloads"
)

func newPortForwardCommand() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward NAME [[LOCAL:]PORT...]",
		Short: "Forward local ports to a workload",
		Long: `Forward ports of this machine to a pod of a workload, until Ctrl-C. Without ports these are
the ports that its containers declare. :PORT chooses a free local port. Your role must allow
it: pods/portforward, in your own pods or in all of the project.`,
		Example: `  # Forward port 8888
  sluice port-forward notebook 8888

  # Forward the local port 9000 to port 6006
  sluice port-forward training 9000:6006 -p thesis-mueller`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "Local addresses to listen on")
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := flags.connectPod(cmd, args[0], true)
		if err != nil {
			return err
		}
		ports := args[1:]
		if len(ports) == 0 {
			if ports = declaredPorts(target.workload, target.pod); len(ports) == 0 {
				return fmt.Errorf("%s declares no port; name one: sluice port-forward %s 8888", referenceText(target.workload), args[0])
			}
		}
		for _, port := range ports {
			if err := validatePorts(port); err != nil {
				return err
			}
		}
		forwarder, err := target.newPortForwarder(cmd.Context(), target.pod, addresses, ports, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return explainForwarding(cmd.Context(), target.pod, forwarder.ForwardPorts())
	}
	return cmd
}

// validatePorts checks PORT, LOCAL:PORT or :PORT.
func validatePorts(text string) error {
	local, remote, both := strings.Cut(text, ":")
	if !both {
		local, remote = "", text
	}
	if !isPort(remote) || local != "" && !isPort(local) {
		return fmt.Errorf("%q: want PORT, LOCAL:PORT or :PORT, with numbers from 1 to 65535", text)
	}
	return nil
}

func isPort(text string) bool {
	number, err := strconv.ParseUint(text, 10, 16)
	return err == nil && number > 0
}

// declaredPorts returns the TCP ports of a pod's containers, and then the targets of its Services.
func declaredPorts(w *workloads.Workload, pod *corev1.Pod) []string {
	var ports []string
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Protocol == corev1.ProtocolTCP || port.Protocol == "" {
				ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
			}
		}
	}
	for _, service := range w.Services {
		for _, port := range service.Spec.Ports {
			if len(ports) == 0 && port.TargetPort.IntVal > 0 {
				ports = append(ports, strconv.Itoa(int(port.TargetPort.IntVal)))
			}
		}
	}
	return ports
}

// newPortForwarder returns a forwarder that connects through a WebSocket, and to servers that know none with
// SPDY, as kubectl does. It runs until ctx ends.
func (c *clusterClient) newPortForwarder(
	ctx context.Context, pod *corev1.Pod, addresses, ports []string, output, notes io.Writer,
) (*portforward.PortForwarder, error) {
	request, err := c.podRequest(http.MethodPost, pod, "portforward")
	if err != nil {
		return nil, err
	}
	config := c.streamConfig()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	dialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, request.URL())
	webSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(request.URL(), config)
	if err != nil {
		return nil, err
	}
	both := portforward.NewFallbackDialerForStreaming(webSocket, dialer, isUpgradeFailure)
	return portforward.NewOnAddressesForStreamingWithContext(ctx, both, addresses, ports, make(chan struct{}), output, notes)
}

// explainForwarding returns why forwarding ended; nil after Ctrl-C.
func explainForwarding(ctx context.Context, pod *corev1.Pod, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if errors.Is(err, portforward.ErrLostConnectionToPod) {
		return fmt.Errorf("pod %s ended or lost its connection", pod.Name)
	}
	return fmt.Errorf("forward to pod %s: %w", pod.Name, explainRefusedStream(err, "portforward"))
}
