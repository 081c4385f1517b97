"""A robot that looks, plans and acts in closed loop over the live session, and a page that shows it."""
