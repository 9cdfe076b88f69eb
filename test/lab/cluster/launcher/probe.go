// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probeTarget returns the containerPort of a probe.
func probeTarget(probe *corev1.Probe, container *corev1.Container) (int32, error) {
	var port intstr.IntOrString
	switch {
	case probe.HTTPGet != nil && probe.HTTPGet.Host != "":
		return 0, fmt.Errorf("httpGet.host %q: not supported by the launcher", probe.HTTPGet.Host)
	case probe.HTTPGet != nil:
		port = probe.HTTPGet.Port
	case probe.TCPSocket != nil && probe.TCPSocket.Host == "":
		port = probe.TCPSocket.Port
	default:
		return 0, errors.New("the launcher supports only httpGet and tcpSocket")
	}
	for _, declared := range container.Ports {
		if port.Type == intstr.String && declared.Name == port.StrVal || port.Type == intstr.Int && declared.ContainerPort == port.IntVal {
			return declared.ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("port %s is no containerPort of the container", port.String())
}

// probeClient does not verify certificates and follows no redirect, like the kubelet's.
var probeClient = &http.Client{
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet's
		DisableKeepAlives: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// check runs a probe once; nil means success.
func (i *identity) check(ctx context.Context, probe *corev1.Probe, container *corev1.Container) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(max(probe.TimeoutSeconds, 1)))
	defer cancel()
	port, err := probeTarget(probe, container)
	if err != nil {
		return err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(i.ports[port]))
	if probe.HTTPGet == nil {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	scheme := strings.ToLower(string(probe.HTTPGet.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	url := scheme + "://" + address + "/" + strings.TrimPrefix(probe.HTTPGet.Path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for _, header := range probe.HTTPGet.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	response, err := probeClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// run is one run of a container's process.
type run struct {
	pid       int
	startedAt time.Time
	cancel    context.CancelFunc
	// ready is closed when the run is ready for the first time. The group itself probes
	// until then, without initialDelaySeconds and more often than periodSeconds.
	ready chan struct{}
	// unready is set while a run that has been ready fails its readiness probe.
	unready atomic.Bool
}

func (r *run) setReady() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// probe starts the probes of a new run. They end with ctx.
func (w *worker) probe(ctx context.Context, c *container, r *run) {
	go w.probeReadiness(ctx, c, r)
	go w.probeLiveness(ctx, c, r)
}

// probeReadiness keeps the readiness of a run that has been ready once.
func (w *worker) probeReadiness(ctx context.Context, c *container, r *run) {
	probe := c.spec.ReadinessProbe
	select {
	case <-ctx.Done():
		return
	case <-r.ready:
	}
	if probe == nil {
		return
	}
	failures, successes := int32(0), int32(0)
	for waitPeriod(ctx, probe) {
		err := w.identity.check(ctx, probe, c.spec)
		if err != nil {
			failures, successes = failures+1, 0
		} else {
			failures, successes = 0, successes+1
		}
		before := r.unready.Load()
		switch {
		case ctx.Err() != nil:
			return
		case !before && failures >= max(probe.FailureThreshold, 1):
			w.log.Info("Readiness probe failed", "container", c.spec.Name, "error", err)
			r.unready.Store(true)
		case before && successes >= max(probe.SuccessThreshold, 1):
			r.unready.Store(false)
		}
		if r.unready.Load() != before {
			w.notify()
		}
	}
}

// probeLiveness restarts a run whose startup or liveness probe fails.
func (w *worker) probeLiveness(ctx context.Context, c *container, r *run) {
	if startup := c.spec.StartupProbe; startup != nil {
		limit := time.NewTimer(seconds(startup.InitialDelaySeconds + max(startup.PeriodSeconds, 1)*max(startup.FailureThreshold, 1)))
		defer limit.Stop()
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
			w.restart(ctx, c, "startup probe failed")
			return
		case <-r.ready:
		}
	}
	probe := c.spec.LivenessProbe
	if probe == nil || !waitFor(ctx, seconds(probe.InitialDelaySeconds)) {
		return
	}
	failures := int32(0)
	for waitPeriod(ctx, probe) {
		err := w.identity.check(ctx, probe, c.spec)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			continue
		}
		if failures++; failures >= max(probe.FailureThreshold, 1) {
			w.restart(ctx, c, "liveness probe failed: "+err.Error())
			return
		}
	}
}

// waitPeriod waits for the next time of a probe. It returns false if ctx ends first.
func waitPeriod(ctx context.Context, probe *corev1.Probe) bool {
	return waitFor(ctx, seconds(max(probe.PeriodSeconds, 1)))
}

// waitFor returns false if ctx ends before the time has passed.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// restart ends a run, which the group then starts again.
func (w *worker) restart(ctx context.Context, c *container, reason string) {
	w.log.Info("Restarting container", "container", c.spec.Name, "reason", reason)
	if err := w.launcher.Group.Restart(ctx, c.process); err != nil && ctx.Err() == nil {
		w.log.Warn("Failed to restart container", "container", c.spec.Name, "error", err)
	}
}
