package main

import (
	"path/filepath"
	"strings"

	"bindery/commands"
	"bindery/events"
)

// Which setting came from where. What is in the environment may be anybody's
// mistake, a secret even: values that look like one are not shown.

// storeSetting is where the store is, and who says so.
func (c *cli) storeSetting(dir string) doctorCheck {
	data := c.program.Getenv("XDG_DATA_HOME")
	from := "neither --store nor BINDERY_STORE is given: the default below HOME"
	switch {
	case c.globals.store != "":
		from = "--store"
	case c.program.Getenv("BINDERY_STORE") != "":
		from = "BINDERY_STORE"
	case filepath.IsAbs(data):
		from = "neither --store nor BINDERY_STORE is given: the default below XDG_DATA_HOME"
	case data != "":
		return warned("setting_store", "the store is "+dir, "XDG_DATA_HOME is no absolute path and is not regarded: the default below HOME", advise("unset XDG_DATA_HOME"))
	}
	return ok("setting_store", "the store is "+dir, from)
}

// serverSetting is which server is asked, and who says so.
func (c *cli) serverSetting(n natsContext) doctorCheck {
	from := "NATS_CONTEXT or NATS_URL, and no store is given"
	switch {
	case c.globals.server != "":
		from = "--server"
	case c.globals.context != "":
		from = "--context"
	}
	shown := notShown
	if public := publicURL(n.URL); events.CheckNoSecret(public) == nil {
		shown = public
	}
	return ok("setting_server", "the server is "+orDash(clip(shown)), from)
}

// meshSetting is which mesh is meant; there is the one that was found, if any.
func (c *cli) meshSetting(there string) doctorCheck {
	if asked := c.globals.mesh; asked != "" {
		return ok("setting_mesh", "the mesh is "+clip(asked), "--mesh")
	}
	if there == "" {
		return skipped("the ledger is not open, and --mesh is not given", "setting_mesh")[0]
	}
	return ok("setting_mesh", "the mesh is "+there, "it is the only one there, and --mesh is not given")
}

func (c *cli) outputSetting() doctorCheck {
	from := "the default"
	switch {
	case c.globals.output != "":
		from = "-o"
	case c.program.Getenv("BINDERY_OUTPUT") != "":
		from = "BINDERY_OUTPUT"
	}
	return ok("setting_output", "the output is "+string(c.ui.format), from)
}

func (c *cli) actorSetting() doctorCheck {
	if actor := c.program.Getenv("BINDERY_ACTOR"); actor != "" {
		return judgeActor(actor, "BINDERY_ACTOR; --actor goes before it", program("unset", "BINDERY_ACTOR"))
	}
	return judgeActor(osActor(), "the system's user and host; --actor and BINDERY_ACTOR go before them", program("export", "BINDERY_ACTOR=NAME"))
}

func judgeActor(actor, from string, fix commands.Fix) doctorCheck {
	if err := events.CheckActor(actor); err != nil {
		return bad("setting_actor", "the actor cannot be recorded", err.Error()+"; it comes from "+from, fix)
	}
	if strings.HasPrefix(actor, unknownUser+"@") {
		return warned("setting_actor", "the actor is "+clip(actor), "the system does not know who this is, and so will nobody who reads the log", fix)
	}
	return ok("setting_actor", "the actor is "+clip(actor), from)
}
