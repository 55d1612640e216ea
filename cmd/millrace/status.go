package main

import "millrace/public"

// dayFile is the name of the file of the page's curves.
const dayFile = "day.samples"

// process is what the status page shows beside the log.
func (d *daemon) process() public.Process {
	relay := d.client.Status()
	p := public.Process{Relay: &public.Relay{
		Host: relay.Host, Connected: relay.Connected, Since: relay.Since, Error: relay.LastError, Advice: relay.Advice,
		Lag: d.pipeline.RelayLag(), Pending: d.pipeline.Lag(),
	}}
	if least := d.disk.least.Load(); least != nil {
		p.FreeBytes = &least.bytes
	}
	if d.uids != nil {
		dids, uris := d.uids.interner.Given()
		p.UIDs = &public.UIDCount{
			Total: d.uidsAtStart + dids + uris, NewDIDs: dids, NewURIs: uris,
			DIDsOnly: d.cfg.internScope.value == "dids",
		}
	}
	return p
}
