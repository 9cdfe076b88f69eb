// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func newLogsCommand() *cobra.Command {
	var options corev1.PodLogOptions
	var tail int64
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a workload wrote to its output",
		Long: `Print the log of a pod of a workload: of the first that runs, or the last that ended. The
log is printed as the program wrote it.`,
		Example: `  # Print the log
  sluice logs training

  # Follow the log of one pod, from its last 100 lines
  sluice logs training --pod training-1-x7k2p --tail 100 -f

  # Print the log of a container before its last restart
  sluice logs notebook -c jupyter --previous`,
		Args: cobra.ExactArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.Flags().BoolVarP(&options.Follow, "follow", "f", false, "Print further lines until the pod ends")
	cmd.Flags().BoolVar(&options.Previous, "previous", false, "Print the log of the container before its last restart")
	cmd.Flags().BoolVar(&options.Timestamps, "timestamps", false, "Print the time of each line")
	cmd.Flags().Int64Var(&tail, "tail", -1, "Number of lines from the end; -1 prints all")
	cmd.Flags().DurationVar(&since, "since", 0, "Print the lines of this time, such as 5m")
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if tail < -1 {
			return fmt.Errorf("--tail %d: want a number of lines, or -1 for all", tail)
		}
		if since < 0 {
			return fmt.Errorf("--since %s: want a time such as 5m", since)
		}
		target, err := flags.connectPod(cmd, args[0], false)
		if err != nil {
			return err
		}
		if options.Container = target.container; tail >= 0 {
			options.TailLines = &tail
		}
		if since > 0 {
			// The API server takes whole seconds, from 1 on.
			options.SinceSeconds = ptr.To(int64(math.Ceil(since.Seconds())))
		}
		return target.copyLog(cmd.Context(), target.pod, &options, cmd.OutOrStdout())
	}
	return cmd
}

// copyLog copies the log of a container to output.
func (c *clusterClient) copyLog(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions, output io.Writer) error {
	config := c.config
	if options.Follow {
		config = c.streamConfig()
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.config.Host, err)
	}
	stream, err := clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("get the log of pod %s: %w", pod.Name, err)
	}
	defer stream.Close()
	_, err = io.Copy(output, stream)
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C
	}
	return err
}
