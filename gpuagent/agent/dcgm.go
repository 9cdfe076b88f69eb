// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/gpuagent/utilization"
)

const (
	// exporterTimeout limits a request to dcgm-exporter, and maxExporterBytes its answer.
	exporterTimeout  = 5 * time.Second
	maxExporterBytes = 8 << 20
	// defaultExporterPort is dcgm-exporter's port.
	defaultExporterPort = 9400
)

// exporterReader reads the utilization of GPU instances from the dcgm-exporter of the node, while a GPU needs
// it: on A100 and A30 in MIG mode nothing else measures it.
type exporterReader struct {
	log logr.Logger
	// pods returns the pods of the node.
	pods func(context.Context) ([]corev1.Pod, error)
	// namespaces are those in which the exporter may run. Users can create pods in others, and pose as it.
	namespaces []string
	// interval is the interval at which the exporter collects.
	interval time.Duration

	needed atomic.Bool
	latest atomic.Pointer[exporterReading]
	failed bool
}

// exporterReading is an answer of the exporter.
type exporterReading struct {
	at   time.Time
	busy map[utilization.Instance]int
}

// start reads twice in each interval until ctx ends.
func (e *exporterReader) start(ctx context.Context) error {
	for sleep(ctx, e.interval/2, nil) {
		if e.needed.Load() {
			e.read(ctx)
		}
	}
	return nil
}

func (e *exporterReader) read(ctx context.Context) {
	text, err := e.fetch(ctx)
	if err != nil {
		if !e.failed {
			e.log.Error(err, "Failed to read dcgm-exporter; the use of MIG devices without another source is unknown")
		}
		e.failed = true
		return
	}
	e.failed = false
	e.latest.Store(&exporterReading{at: time.Now(), busy: utilization.ParseExporterText(text)})
}

// fetch returns the text of the node's exporter, and "" without one.
func (e *exporterReader) fetch(ctx context.Context) (string, error) {
	pods, err := e.pods(ctx)
	if err != nil {
		return "", err
	}
	address := exporterAddress(pods, e.namespaces)
	if address == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, exporterTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("read dcgm-exporter at %s: status %s", address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxExporterBytes))
	return string(text), err
}

// exporterAddress returns the address of the running dcgm-exporter pod in one of the namespaces; "" without one.
func exporterAddress(pods []corev1.Pod, namespaces []string) string {
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || !slices.Contains(namespaces, pod.Namespace) {
			continue
		}
		for j := range pod.Spec.Containers {
			if c := &pod.Spec.Containers[j]; isExporterImage(c.Image) {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(exporterPort(c)))
			}
		}
	}
	return ""
}

// isExporterImage reports whether the last part of an image's name is dcgm-exporter.
func isExporterImage(image string) bool {
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name == "dcgm-exporter"
}

func exporterPort(c *corev1.Container) int {
	for _, port := range c.Ports {
		if port.Name == "metrics" || port.ContainerPort == defaultExporterPort {
			return int(port.ContainerPort)
		}
	}
	return defaultExporterPort
}

// exporterLayout is a GPU's instances with their identifiers, and since when the exporter reports them.
type exporterLayout struct {
	signature string
	since     time.Time
}

// busyInstances returns the utilization of a GPU's instances by first slice as the exporter reports it. It is
// empty while the exporter may still report former instances, whose identifiers the driver reuses: until it was
// reloaded after a change and then collected twice. It returns false if the exporter does not report the GPU.
func (s *sampler) busyInstances(gpu string, starts map[uint32]int, signature string, o *observation, now time.Time) (map[int]int, bool) {
	e := s.exporter
	if s.layouts == nil {
		s.layouts = map[string]exporterLayout{}
	}
	layout := s.layouts[gpu]
	if layout.signature != signature || layout.since.IsZero() {
		layout = exporterLayout{signature, now}
	}
	if o.exporterOutdated {
		layout.since = now
	}
	if o.exporterReloadedAt.After(layout.since) {
		layout.since = o.exporterReloadedAt
	}
	s.layouts[gpu] = layout
	reading := e.latest.Load()
	if reading == nil || now.Sub(reading.at) > 2*e.interval {
		return nil, false
	}
	busy, reported := map[int]int{}, false
	for id, start := range starts {
		if percent, ok := reading.busy[utilization.Instance{GPU: gpu, ID: id}]; ok {
			busy[start], reported = percent, true
		}
	}
	if now.Sub(layout.since) < 2*e.interval || reading.at.Before(layout.since.Add(2*e.interval)) {
		return map[int]int{}, reported
	}
	return busy, reported
}
