// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import "sluice.dev/gpuagent/nvml"

// nothing is the answer of calls that have none.
type nothing struct{}

// Init implements [nvml.Library]. Each Init needs a Shutdown.
func (p *program) Init() error {
	_, err := ask(p, Call{Method: "Init"}, func() (nothing, error) {
		if p.node.missing != nil {
			return nothing{}, p.node.missing
		}
		if p.life != p.node.lives {
			p.inits, p.life = 0, p.node.lives
		}
		p.inits++
		return nothing{}, nil
	})
	return err
}

// Shutdown implements [nvml.Library].
func (p *program) Shutdown() error {
	_, err := ask(p, Call{Method: "Shutdown"}, func() (nothing, error) {
		p.inits--
		return nothing{}, nil
	})
	return err
}

// DriverVersion implements [nvml.Library].
func (p *program) DriverVersion() (string, error) {
	return ask(p, Call{Method: "DriverVersion"}, func() (string, error) { return p.node.version, nil })
}

var _ nvml.Library = (*program)(nil)
