-- README.md stands one folder above the notebook: what is relative there starts with nbs/ here.
local function from_top(target)
  if target:match('^%a[%w+.-]*:') or target:match('^#') then return target end
  return 'nbs/' .. target
end

function Image(image) image.src = from_top(image.src); return image end
function Link(link) link.target = from_top(link.target); return link end
