#include "corpus/shapes.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <string_view>

namespace needle::corpus {
namespace {

// clang-format off
constexpr const char* kHome = R"(
@set_blinds move_blinds blind_position|Open or close the blinds of a room.|Move window blinds.
-room,where,area:enum(#rooms)! Which room.
-position,percent,level:int(0,100)? 0 is shut, 100 is open.
-side,wall:enum(#sides)?
>(set|move) the {room} blinds to {position}[ on the {side}]
>(lower|raise) the blinds in the {room} to {position} percent
@start_vacuum run_vacuum vacuum_room|Send the robot vacuum to a room.|Clean a room with the robot.
-room,zone,target:enum(#rooms)!
-mode,power:enum(#modes)? Cleaning mode.
-passes,rounds:int(1,4)?
-mop:bool?
>vacuum the {room}[ in {mode} mode][ {passes} times][ {mop=true:and mop it too}]
>send the robot to the {room}[, {passes} passes][, {mop=false:no mopping}]
@lock_door door_lock change_lock|Lock or unlock a door.|Control a smart lock.
-door,lock,entrance:enum(#sides)! Which door.
-locked,closed,secure:bool! True locks the door.
>{locked=true:lock} the {door} door
>{locked=false:unlock} the {door} door
>make sure the {door} door is {locked=true:locked}
>leave the {door} door {locked=false:unlocked}
@run_appliance start_device appliance_on|Run a household device with a program.|Start an appliance.
-device,machine,appliance:enum(#devices)! The device to run.
-program,mode,cycle:enum(#modes)?
-delay,start_in,wait_minutes:int(1,180)? Delay before the start, in minutes.
>run the {device}[ on {program}][ in {delay} minutes]
>start the {device}[ with the {program} program][ after {delay} minutes]
@switch_outlet toggle_plug plug_control|Switch a power outlet.|Turn a plug on or off.
-plug,outlet,socket:label! Name of the plug.
-on,powered,state:bool! Whether power is on.
>turn {on=true:on} the {plug} plug
>switch {on=false:off} the {plug} plug
>{plug} plug {on=false:off}
>{plug} plug {on=true:on}
@set_humidity humidifier_target humidity_goal|Set the target humidity of a room.
-room,place:enum(#rooms)!
-percent,target,humidity:int(20,80)! Relative humidity in percent.
-quiet,silent:bool?
>keep the {room} at {percent} percent humidity[ {quiet=true:quietly}]
>humidity in the {room} to {percent}
@boiler_schedule set_boiler water_heater|Heat water at a given time.
-start,from,begin:time! 24 hour clock.
-end,until,to:time? 24 hour clock.
-degrees,temperature,celsius:num(30,70,1)? Water temperature.
>hot water from {start}[ until {end}][ at {degrees} degrees]
>heat the boiler at {start}[ to {degrees} degrees]
@water_garden run_sprinkler irrigate|Water a part of the garden.|Run the sprinklers.
-bed,zone,patch:enum(#plants)! What to water.
-litres,amount,volume:num(1,60,1)? Amount of water in litres.
-minutes,duration:int(1,45)?
>water the {bed}[ for {minutes} minutes]
>give the {bed} {litres} litres
>sprinkle {litres} litres on the {bed}
@alarm_mode arm_alarm security_mode|Arm or disarm the house alarm.
-mode,level,state:enum(#modes)!
-code,pin_code,pin:id? Access code.
-delay_s,delay,seconds:int(10,120)? Delay in seconds.
>set the alarm to {mode}[ with code {code}][ after {delay_s} seconds]
>arm the house in {mode} mode[, code {code}]
@camera_clip save_clip record_camera|Record a clip from a camera.
-camera,source,cam:label! Camera name.
-seconds,length,duration:int(5,300)!
-night,infrared:bool? Night vision.
>record {seconds} seconds from the {camera} camera[ {night=true:with night vision}]
>save a {seconds} second clip of the {camera} camera
@tv_channel change_channel tune_tv|Tune the television.
-channel,station,number:int(1,400)!
-subtitles,captions:bool?
-volume,loudness:int(0,50)?
>put the tv on channel {channel}[ {subtitles=true:with subtitles}][ at volume {volume}]
>channel {channel} please[, {subtitles=false:no subtitles}][, volume {volume}]
@fan_speed set_fan ventilate|Set the speed of a fan.
-room,fan,place:enum(#rooms)!
-speed,level,strength:enum(#levels)!
-oscillate,swing:bool?
>(run|set) the {room} fan (on|to) {speed}[ {oscillate=true:swinging}]
>{speed} fan in the {room}[ for a bit]
@window_state open_window windows|Open or close a window.
-room,place:enum(#rooms)!
-open,opened:bool!
>{open=true:open} the {room} window
>{open=false:close} the {room} window
>{open=false:shut} the window in the {room}
@curtain_color led_strip strip_light|Colour of the LED strip.
-place,strip,where:label! Where the strip is.
-color,colour,hue:enum(#colours)!
-blink,flash:bool? Whether it blinks.
>(make|turn) the {place} strip {color}[ and {blink=true:blinking}]
>{color} for the strip at the {place}
@pet_feeder feed_pet dispense_food|Dispense food for a pet.
-animal,pet,species:enum(#animals)!
-grams,portion,amount:int(5,400)! Portion in grams.
-note,remark:qtext?
>feed the {animal} {grams} grams[, note {note'}]
>{grams} grams for the {animal}
@chore_assign give_chore assign_task|Assign a chore to a member of the household.
-who,person,assignee:person! Who does it.
-chore,task,job:text! What is to be done.
-day,due:enum(#weekdays)?
>ask {who} to {chore}
>on {day} {who} should {chore}
>chore for {who}: {chore}
@energy_limit cap_power power_cap|Limit the power that a device may draw.
-device,load,consumer:enum(#devices)!
-watts,limit,max_watts:int(100,5000)! Upper limit in watts.
>limit the {device} to {watts} watts
>the {device} may use {watts} watts at most
@garage_door gate_control gate|Operate a gate.
-gate,door,which:label!
-action,command,move:enum(#open_close)! What to do.
>{action} the {gate} gate
>the {gate} gate should {action}
@pool_heating heat_pool pool_temp|Heat the pool.
-celsius,temperature,degrees:num(18,34,1)! Water temperature.
-cover,covered:bool? Keep the cover on.
>heat the pool to {celsius}[ degrees][ {cover=true:with the cover on}]
>pool at {celsius} degrees[, {cover=false:cover off}]
@doorbell_tone set_doorbell chime|Choose the sound of the doorbell.
-tone,sound,melody:title!
-volume,loudness:num(0,1,2)? 0.0 to 1.0
>doorbell tone {tone}[ at {volume}]
>make the doorbell play {tone}
)";
constexpr const char* kOffice = R"(
@send_email compose_mail write_email|Send an email.|Write an electronic letter to someone.
-to,recipient,address:email! Address of the recipient.
-subject,topic,headline:label! Subject line.
-body,text,content:qtext? The text itself.
-urgent,important,priority:bool?
>(email|mail) {to} about {subject}[ saying {body'}][ {urgent=true:marked urgent}]
>send {to} a mail with subject {subject}[ and text {body'}]
@post_update publish_post share_status|Publish a post on a channel.|Share news with the team.
-channel,room,group:label! Channel to post in.
-message,text,post:text! Exact words of the post.
-pin,sticky:bool? Keep it on top.
>post in {channel}: {message}
>{pin=true:pin} a post in {channel}: {message}
>tell the {channel} channel that {message}
@create_ticket open_ticket report_issue|Open a ticket in the tracker.|Report a problem.
-summary,title,what:text! One line.
-priority,severity,urgency:enum(#priorities)?
-team,queue,department:enum(#teams)?
>open a {priority} ticket: {summary}
>ticket for {team}: {summary}
>report that {summary}
@assign_ticket hand_over reassign|Give a ticket to somebody.
-ticket,id,key:id! Ticket key.
-owner,assignee,to:person!
-state,status:enum(#states)?
>(assign|give|hand) {ticket} to {owner}[ and mark it {state}]
>{owner} takes {ticket}[, state {state}]
@close_ticket update_ticket ticket_state|Change the state of a ticket.
-ticket,id,number:id!
-state,status,to:enum(#states)!
-comment,note,remark:qtext?
>(set|move) {ticket} to {state}[ with the comment {comment'}]
>{ticket} is {state}[, comment {comment'}]
@book_room reserve_room room_booking|Reserve a meeting room.
-room,name,which:title! Name of the room.
-day,on,weekday:enum(#weekdays)!
-from,start,begin:time! HH:MM.
-to,end,until:time?
-equipment,needs,extras:elist(#devices)?
>(book|reserve) {room} on {day} (at|from) {from}[ until {to}][ with {equipment}]
>{room} {day} {from}[ to {to}]
@invite_people add_guests invite|Invite people to a meeting.
-meeting,title,event:title!
-people,guests,attendees:list(person)! Names.
-optional,not_required:bool?
>invite {people} to {meeting}[ {optional=true:as optional}]
>add {people} to the {meeting} meeting
@create_document new_doc make_document|Create an empty document.
-title,name,heading:qtext! Title of the document.
-format,type,kind:enum(#formats)?
-folder,location,path:label?
>create a document called {title'}[ as {format}][ in {folder}]
>new {format} document {title'}
@share_file grant_access file_share|Share a file with someone.
-file,document,path:file! File name.
-with,person,user:person! Who gets access.
-edit,writable,can_edit:bool? May they change it.
>share {file} with {with}[ {edit=true:for editing}]
>let {with} see {file}[, {edit=false:read only}]
@convert_file change_format export_file|Convert a file into another format.
-file,source,input:file!
-format,target,output:enum(#formats)!
-quality,percent:int(1,100)?
>(convert|export) {file} (to|as) {format}[ at quality {quality}]
>I need {file} as {format}
@print_file print_document send_to_printer|Print a file.
-file,document,name:file!
-copies,count,number:int(1,40)?
-color,colour:bool?
-options,settings,layout.paper,size:enum(#sizes)?
-options,settings,layout.double,duplex:bool?
>print {file}[ {copies} times][ {color=true:in colour}]
>print {copies} copies of {file}[ on {paper} paper][ {double=true:double sided}]
@log_hours record_time add_hours|Record working hours on a project.|Store time spent.
-project,client,on:title!
-hours,time,amount:num(0.25,12,2)! Hours worked.
-note,comment,what:qtext?
>(log|record|book) {hours} hours on {project}[ for {note'}]
>{hours} hours for {project}
@request_leave take_leave absence|Request days of leave.
-from,first_day,start:date! First day, YYYY-MM-DD.
-to,last_day,end:date? Last day, YYYY-MM-DD.
-reason,why,note:label?
>leave from {from}[ to {to}][ because of {reason}]
>I am away {from}[ until {to}]
@expense_claim add_expense submit_expense|Submit an expense.
-amount,sum,value:num(1,900,2)! Amount paid.
-currency,money,unit:enum(#money)!
-what,description,for:label! What was bought.
>(expense|claim) {amount} {currency} for {what}
>I spent {amount} {currency} on {what}
@make_invoice create_invoice bill_customer|Create an invoice for a customer.
-customer,client,to:company!
-total,amount,sum:num(10,9000,2)!
-due_days,days,payable_in:int(7,90)? Days until payment is due.
-tax,vat:bool? Add tax.
>(invoice|bill) {customer} for {total}[ due in {due_days} days][ {tax=true:with tax}]
>invoice of {total} to {customer}[, {tax=false:without tax}]
@set_reminder remind_me reminder|Remind the user of something later.|Keep a reminder.
-text,what,about:text! What to remind of.
-when,time,at:time? HH:MM
-repeat,every,frequency:enum(#frequency)?
>remind me at {when} to {text}
>reminder: {text}
>remind me {repeat} to {text}
@search_mail find_mail mail_search|Search the mailbox.
-words,query,terms:qtext!
-sender,from,author:person?
-unread,only_unread:bool?
>search my mail for {words'}[ from {sender}][ {unread=true:unread only}]
>find mails from {sender} about {words'}
@set_status presence my_status|Set the presence shown to colleagues.
-status,state,presence:qtext!
-until,end,till:time?
-mute,do_not_disturb:bool? Silence notifications.
>set my status to {status'}[ until {until}][ and {mute=true:mute everything}]
@scan_page scan_document digitise|Scan paper to a file.
-name,file,title:file!
-dpi,resolution,quality:int(100,1200)?
-format,type:enum(#formats)?
>scan to {name}[ at {dpi} dpi][ as {format}]
@order_supplies buy_supplies stock_order|Order office supplies.
-item,article,product:label!
-quantity,count,pieces:int(1,500)!
-team,for,department:enum(#teams)?
>order {quantity} {item}[ for {team}]
>we need {quantity} {item}[ in {team}]
@run_report build_report report|Build a report from stored data.
-name,report,title:label!
-month,period,for:enum(#months)?
-format,as,output:enum(#formats)?
-totals,sums:bool? Include totals.
>run the {name} report[ for {month}][ as {format}][ {totals=true:with totals}]
>{name} report for {month}[ in {format}]
@call_contact dial phone_call|Call somebody.
-who,contact,name:person!
-number,phone,line:phone?
-speaker,loud:bool? Use the loudspeaker.
>(call|ring|phone) {who}[ on {number}][ {speaker=true:on speaker}]
>dial {number} for {who}
@forward_call redirect_calls divert|Forward calls to a number.
-number,target,to:phone!
-after,rings,seconds:int(1,20)?
>forward my calls to {number}[ after {after} rings]
>divert calls to {number}
@translate_file translate_document localise|Translate a document.
-file,path,document:file!
-language,into,target:enum(#languages)!
-formal,polite:bool?
>translate {file} into {language}[ {formal=true:formally}]
>I need {file} in {language}
@spell_check proofread check_text|Check the spelling of a phrase.
-phrase,text,sentence:qtext!
-language,lang,locale:enum(#languages)?
>check the spelling of {phrase'}[ in {language}]
>proofread {phrase'}[ as {language}]
)";
constexpr const char* kShopping = R"(
@add_to_list shopping_list list_add|Add things to a shopping list.|Put items on a list.
-items,things,products:list(noun)! What to add.
-list,name,which:label?
>add {items}
>put {items} on the list
>add {items} to the {list} list
@order_pizza pizza_order get_pizza|Order a pizza.
-kind,pizza,name:enum(#dishes)!
-size,how_big,format:enum(#sizes)?
-toppings,extras,with:elist(#toppings)?
-count,number,quantity:int(1,12)?
>order {count} {kind}[, size {size}][, with {toppings}]
>a {size} {kind}[ with {toppings}]
>get me {kind}[ with {toppings}]
@order_drink make_drink brew|Order a drink.
-drink,beverage,what:enum(#drinks)!
-size,cup,volume:enum(#sizes)?
-sugar,sweet:bool?
-name,for,guest:person?
>(one|a) {size} {drink}[ {sugar=true:with sugar}][ for {name}]
>{drink}[ for {name}][ {sugar=false:without sugar}]
@book_table reserve_table table_reservation|Reserve a table at a restaurant.
-venue,restaurant,place:title! Name of the restaurant.
-guests,people,party_size:int(1,14)! Number of guests.
-time,at,hour:time! 24 hour clock, HH:MM.
-outdoor,terrace,outside:bool?
>(book|reserve) a table at {venue} for {guests} at {time}[ {outdoor=true:outside}]
>table for {guests} at {venue}, {time}[, {outdoor=false:inside}]
@find_recipe recipe_search search_recipes|Find a recipe.
-dish,name,what:enum(#dishes)!
-minutes,max_minutes,time:int(10,120)? Longest cooking time in minutes.
-without,exclude,avoid:elist(#toppings)? Ingredients to leave out.
>recipe for {dish}[ in under {minutes} minutes][ without {without}]
>how do I cook {dish}[ in {minutes} minutes]
@scale_recipe portions resize_recipe|Scale a recipe to a number of portions.
-recipe,dish,name:qtext!
-portions,servings,people:int(1,40)!
>scale {recipe'} to {portions} portions
>{recipe'} for {portions} people
@track_parcel parcel_status where_is_parcel|Find where a parcel is.
-number,code,tracking:id! Tracking number.
-carrier,company,service:company?
>(track|where is|find) parcel {number}[ with {carrier}]
>has {number} arrived
@return_item start_return send_back|Return something that was bought.
-order,order_id,number:id!
-reason,why,because:label! Why it goes back.
-refund,money_back:bool?
>return {order} because of {reason}[, {refund=true:refund me}]
>send back order {order}, reason {reason}
@price_alert watch_price price_watch|Tell when the price of a product falls.
-product,item,article:title!
-below,limit,max_price:num(1,999,2)! Price.
-currency,money,in:enum(#money)?
>(alert me|let me hear) when {product} falls below {below}[ {currency}]
>watch {product} under {below}
@compare_prices best_price price_compare|Compare the prices of shops.
-product,item,what:title!
-shops,stores,sellers:list(company)?
>compare prices of {product}[ at {shops}]
>where is {product} cheapest
@tip_amount compute_tip tip|Compute a tip.
-bill,total,amount:num(5,400,2)!
-percent,rate,share:int(5,30)!
-people,split,ways:int(2,12)?
>{percent} percent tip on {bill}[ split {people} ways]
>tip for a bill of {bill} at {percent} percent
@gift_card send_gift voucher|Send a gift card.
-to,recipient,for:person!
-value,amount,worth:int(5,500)!
-greeting,message,text:qtext?
>send {to} a gift card of {value}[ with {greeting'}]
>gift card worth {value} for {to}
@stock_level check_stock inventory|See how many pieces are in stock.
-sku,article,code:id!
-store,branch,site:city?
>how many {sku} are there[ in {store}]
>stock of {sku}[ at {store}]
@rate_product review_item leave_review|Leave a review.
-product,item,what:title!
-stars,rating,score:int(1,5)!
-comment,text,review:qtext?
>(rate|review) {product} with {stars} stars[ and say {comment'}]
>{stars} stars for {product}
@meal_plan plan_meal set_meal|Plan a meal for a day.
-day,date,weekday:enum(#weekdays)!
-meal,dish,what:enum(#dishes)!
-guests,people,extra:int(1,9)?
>{meal} on {day}[ for {guests}]
>plan {meal} for {day}[, {guests} guests]
@pantry_remove use_up take_out|Remove food from the pantry inventory.
-food,item,what:noun!
-amount,quantity,grams:num(10,900,1)!
-unit,measure,in:unit?
>I used {amount} {unit} of {food}
>take {amount} {unit} of {food} out
@calories food_log log_meal|Note what was eaten.
-food,dish,meal:enum(#dishes)!
-calories,energy,kcal:int(20,1500)?
-time,at,eaten_at:time?
>I ate {food}[ at {time}][, {calories} calories]
>log {food}[ with {calories} kcal]
)";
constexpr const char* kTravel = R"(
@find_flight search_flights flights|Search flights between two cities.
-origin,from,departure_city:city! City of departure.
-destination,to,arrival_city:city! City of arrival.
-date,day,on:date? YYYY-MM-DD
-class,cabin,fare:enum(#classes)?
-direct,nonstop:bool?
>(fly|flights) from {origin} to {destination}[ on {date}][ in {class}][ {direct=true:nonstop}]
>I want to fly to {destination} from {origin}[ on {date}]
@book_hotel reserve_hotel hotel|Book a hotel.
-city,place,town:city!
-nights,stay,duration:int(1,21)!
-room,category,type:enum(#classes)?
-wishes,preferences,extras.floor,level:int(0,30)?
-wishes,preferences,extras.breakfast,meals:bool?
>(book|find) a hotel in {city} for {nights} nights[, {room}]
>{nights} nights in {city}[ on floor {floor}][ {breakfast=true:with breakfast}]
>hotel in {city}, {nights} nights[, {breakfast=false:no breakfast}]
@train_times timetable departures|List trains from a station.
-station,from,stop:place!
-to,destination,towards:place?
-after,time,from_time:time?
>trains from {station}[ to {to}][ after {after}]
>next train from {station} towards {to}
@call_taxi order_taxi get_cab|Order a taxi.
-pickup,from,address:place! Where to get in.
-dropoff,to,goal:place?
-time,at,when:time?
-seats,passengers,people:int(1,7)?
>taxi from {pickup}[ to {dropoff}][ at {time}][ for {seats}]
>pick me up at {pickup}[ at {time}]
@rent_bike hire_bike bike_rental|Rent bicycles.
-station,where,place:place!
-count,number,bikes:int(1,9)?
-hours,duration,time:num(0.5,24,1)?
>rent {count} bikes at {station}[ for {hours} hours]
>a bike from {station} for {hours} hours
@travel_time commute eta|Estimate the time for a journey.
-a,start,from:place!
-b,end,to:place!
-by,means,transport:enum(#transport)?
-skip,avoid,without:elist(#hazards)?
>how long from {a} to {b}[ by {by}][ avoiding {skip}]
>time between {a} and {b}[ with the {by}]
@pack_list packing add_luggage|Add things to the packing list of a trip.
-trip,journey,for:city!
-things,items,luggage:list(noun)!
>pack {things} for {trip}
>for {trip} take {things}
@border_check visa need_visa|Check the visa rules between countries.
-passport,citizenship,from:enum(#languages)!
-country,destination,to:city!
-days,stay,length:int(1,180)?
>does a {passport} passport need a visa for {country}[ for {days} days]
>visa for {country} with a {passport} passport
@find_place nearby search_place|Find a kind of place nearby.
-what,kind,category:label!
-near,around,at:place?
-radius,within,distance:num(0.1,20,1)? Kilometres.
-open,open_now:bool?
>find a {what}[ near {near}][ within {radius} km][ {open=true:that is open}]
>is there a {what}[ around {near}]
@park_car parking reserve_parking|Reserve a parking space.
-plate,car,licence:plate! Number plate.
-place,garage,where:place!
-hours,duration,for:num(0.5,48,1)?
>park {plate} at {place}[ for {hours} hours]
>parking for {plate} at {place}
@charge_car start_charging ev_charge|Charge an electric car.
-car,vehicle,name:label!
-percent,target,level:int(20,100)! Charge to reach.
-until,ready_by,by:time?
>charge the {car} to {percent} percent[ by {until}]
>{car} at {percent} by {until}
@log_fuel fuel_entry refuel|Note a refuelling.
-litres,amount,volume:num(5,90,2)!
-odometer,km,distance:int(1000,300000)?
-full,tank_full:bool?
>refuelled {litres} litres[ at {odometer} km][, {full=true:tank full}]
>{litres} litres of fuel[ at {odometer}]
@save_place bookmark_place pin_place|Save a place to the map.
-name,label,title:qtext!
-location,at,where:place!
-color,colour,marker:enum(#colours)?
>save {location} as {name'}[ in {color}]
>bookmark {location} under {name'}
@seat_change choose_seat pick_seat|Choose a seat on a booking.
-booking,reference,code:id!
-seat,number,position:seat!
-row_side,side,where:enum(#sides)?
>seat {seat} for booking {booking}[ on the {row_side}]
>move {booking} to seat {seat}
@trip_cost share_costs add_cost|Add a cost to a trip that is shared.
-payer,who,paid_by:person!
-amount,sum,cost:num(1,600,2)!
-currency,unit,money:enum(#money)!
-for,what,purpose:label?
>{payer} paid {amount} {currency}[ for {for}]
>add {amount} {currency} by {payer}
@tide_times sea_state tides|Look up the tides of a harbour.
-harbour,port,place:city!
-date,day,on:date?
-metric,metres:bool?
>tides in {harbour}[ on {date}][ {metric=true:in metres}]
>when is high water at {harbour}[ on {date}]
@air_quality pollution aqi|Look up the air quality of a town.|Pollution levels for one place.
-town,city,location:city!
-pollutant,substance,kind:enum(#quantities)?
-hours,ahead,forecast_hours:int(1,72)?
>how clean is the air in {town}
>air quality in {town}[ for the next {hours} hours]
>{pollutant} levels in {town}
@sun_times sunrise daylight|Sunrise and sunset of a place.
-where,city,place:city!
-date,day:date?
-event,which,phase:enum(#sun)?
>{event} in {where}[ on {date}]
>when is {event} in {where}
)";
constexpr const char* kHealth = R"(
@record_measure store_value add_measurement|Store a measured value.|Keep a measurement of the body or a sensor.
-quantity,what,metric:enum(#quantities)!
-value,reading,amount:num(1,250,1)!
-unit,in,measure:unit?
>(record|store|enter) {quantity} {value}[ {unit}]
>{quantity} is {value}[ {unit}]
>my {quantity} was {value} {unit}
@log_workout add_workout training|Store a workout.
-exercise,sport,activity:enum(#exercises)!
-sets,rounds:int(1,9)?
-reps,repetitions,count:int(1,60)?
-weight,load,kg:num(1,180,1)? Kilograms.
>{sets} sets of {reps} {exercise}[ with {weight} kg]
>did {reps} {exercise}[ at {weight} kg]
>log {exercise}[, {sets} sets][, {weight} kg]
@log_run add_run run_entry|Store a run.
-km,distance,length:num(0.5,42,1)!
-minutes,time,duration:num(3,300,1)?
-shoes,gear,with:title?
>ran {km} km[ in {minutes} minutes][ in my {shoes}]
>run of {km} kilometres[, {minutes} minutes]
@medicine_reminder pill_alarm take_pill|Remind of a medicine.
-medicine,drug,name:made!
-dose,amount,mg:num(0.5,800,1)!
-times,at,hours:list(time)? HH:MM each.
>take {dose} mg of {medicine}[ at {times}]
>{medicine} {dose} mg[ at {times}]
@book_doctor make_appointment appointment|Make an appointment with a doctor.
-doctor,with,physician:person!
-date,day,on:date!
-time,at,hour:time?
-reason,why,complaint:label?
>appointment with doctor {doctor} on {date}[ at {time}][ about {reason}]
>see {doctor} on {date}[ because of {reason}]
@log_sleep sleep_entry nights|Store how somebody slept.
-bed,from,asleep:time!
-up,until,awake:time!
-quality,how,rating:enum(#levels)?
>slept from {bed} to {up}[, quality {quality}]
>in bed at {bed}, up at {up}
@water_intake drink_water hydrate|Store a drink of water.
-ml,amount,millilitres:int(50,1500)!
-drink,what,kind:enum(#drinks)?
>drank {ml} ml[ of {drink}]
>{ml} millilitres of {drink}
@mood_entry add_mood diary|Write how the day was.
-mood,feeling,score:int(1,10)!
-text,entry,words:text?
-private,hidden:bool?
>mood {mood}: {text}
>{private=true:private} mood {mood}
>today is a {mood}
@find_symptom triage symptoms|Look up a symptom.
-symptom,complaint,what:label!
-age,years:int(0,99)?
-days,since,duration:int(1,30)?
>look up {symptom}[ at age {age}][ for {days} days]
@breathing start_breathing calm_down|Start a breathing exercise.
-rounds,count,cycles:int(1,30)!
-pace,speed,tempo:enum(#levels)?
>breathe {rounds} rounds[ at {pace} pace]
@vaccination add_vaccine vaccine|Store a vaccination.
-name,vaccine,against:made!
-who,patient,person:person!
-date,on,given:date?
>{who} got the {name} vaccine[ on {date}]
>vaccinated {who} against {name}[ on {date}]
@class_signup join_class course_booking|Join a sports class.
-sport,class,course:enum(#sports)!
-day,weekday,on:enum(#weekdays)!
-level,difficulty,grade:enum(#levels)?
>sign me up for {sport} on {day}[ at {level} level]
>join the {day} {sport} class
@record_score add_score match_result|Record the result of a match.
-home,team_a,first:title!
-away,team_b,second:title!
-goals_home,points_a,score_a:int(0,12)!
-goals_away,points_b,score_b:int(0,12)!
>{home} against {away} ended {goals_home} to {goals_away}
>{home} {goals_home}, {away} {goals_away}
)";
constexpr const char* kMedia = R"(
@play_video watch start_film|Play a film or a series.
-title,film,name:title!
-season,series_season:int(1,12)?
-episode,part,number:int(1,30)?
-subtitles,captions:enum(#languages)?
>(watch|show|stream) {title}[ season {season}][ episode {episode}]
>show {title}[ with {subtitles} subtitles]
@play_podcast listen podcast|Play a podcast episode.
-show,podcast,name:title!
-speed,rate,tempo:num(0.5,3,2)? 1.0 is normal.
-latest,newest:bool?
>play the podcast {show}[ at speed {speed}]
>{latest=true:newest} episode of {show}[ at {speed}]
@radio tune_radio radio_station|Tune to a radio station.
-station,channel,name:title!
-frequency,mhz,fm:num(87,108,1)?
>radio {station}[ on {frequency}]
>tune to {station}[ at {frequency} MHz]
@read_book audiobook continue_book|Read a book aloud.
-book,title,name:title!
-author,by,writer:person?
-chapter,from,start:int(1,60)?
>read {book}[ by {author}][ from chapter {chapter}]
>chapter {chapter} of {book}
@create_playlist new_playlist build_playlist|Make a playlist.
-name,title,label:qtext!
-songs,tracks,titles:list(title)?
-public,shared:bool?
>make a {public=true:public} playlist {name'}
>playlist {name'} with {songs}
>{public=false:private} playlist called {name'}
@find_movie film_search movies|Search films.
-genre,kind,category:enum(#genres)!
-year,from_year,released:int(1930,2024)?
-actor,with,star:person?
>a {genre} film[ from {year}][ with {actor}]
>{genre} movies[ with {actor}][ after {year}]
@take_photo snap capture|Take a photo.
-delay,seconds,countdown:int(1,30)?
-flash,light:bool?
-camera,lens,which:enum(#sides)!
>photo with the {camera} camera[ in {delay} seconds][ {flash=true:with flash}]
>{camera} camera photo[, {flash=false:no flash}]
@crop_image resize_image scale_image|Resize an image.
-file,image,picture:file!
-width,w,pixels_wide:int(16,4000)!
-height,h,pixels_high:int(16,4000)?
>(resize|scale) {file} to {width}[ by {height}]
>{file} at width {width}
@draw_shape add_shape shape|Draw a shape.
-shape,form,figure:enum(#shapes)!
-color,fill,colour:enum(#colours)?
-size,diameter,pixels:int(2,900)?
-outline,border,frame.width,thickness:num(0.5,9,1)?
-outline,border,frame.dashed,dotted:bool?
>draw a {color} {shape}[ of size {size}]
>a {shape}[ in {color}][ with a border of {width}]
>{shape} with a {dashed=true:dashed} border of {width}
@tune_instrument tuner tune|Tune an instrument.
-instrument,what,kind:enum(#instruments)!
-pitch,hz,reference:num(415,466,1)?
>tune the {instrument}[ to {pitch}]
>{instrument} at {pitch} hertz
@metronome beat start_metronome|Start a metronome.
-bpm,tempo,beats:int(30,240)!
-accent,first_beat,stress:int(2,9)?
>metronome at {bpm}[ with accent {accent}]
>{bpm} beats per minute
@book_lesson music_lesson lesson|Book a lesson.
-instrument,subject,what:enum(#instruments)!
-teacher,with,tutor:person!
-minutes,length,duration:int(20,120)?
>{instrument} lesson with {teacher}[ for {minutes} minutes]
>book {teacher} for {instrument}
@buy_ticket tickets event_ticket|Buy tickets for a show.
-show,event,title:title!
-count,number,tickets:int(1,9)!
-category,seats,class:enum(#classes)?
>{count} tickets for {show}[ in {category}]
>buy {count} {category} seats for {show}
@rename_file move_file file_rename|Rename a file.
-from,old,source:file!
-to,new,target:file!
-overwrite,replace,force:bool?
>rename {from} to {to}[ {overwrite=true:even if it exists}]
>{from} becomes {to}
@caption_photo add_caption describe_photo|Add a caption to a photo.
-photo,image,file:file!
-caption,text,words:qtext!
>caption {photo} with {caption'}
>write {caption'} under {photo}
@set_equalizer equalizer sound|Change the sound of the speakers.
-bass,low:int(-10,10)?
-treble,high:int(-10,10)?
-preset,profile,style:enum(#genres)!
>{preset} sound[ with bass {bass}][ and treble {treble}]
>equalizer {preset}[, bass {bass}][, treble {treble}]
)";
constexpr const char* kTech = R"(
@restart_server reboot restart_host|Restart a machine.
-host,server,machine:host! Host name.
-force,hard:bool?
-delay,wait,seconds:int(0,600)?
>(restart|reboot) {host}[ in {delay} seconds][ {force=true:by force}]
>{force=true:force} a restart of {host}
@deploy release rollout|Deploy a version of a service.
-service,app,project:host!
-version,tag,build:version!
-env,environment,stage:enum(#stages)!
-canary,gradual:bool?
>deploy {service} {version} to {env}[ {canary=true:as a canary}]
>roll out version {version} of {service} on {env}
@scale_service set_replicas replicas|Change the number of replicas.
-service,name,deployment:host!
-replicas,count,instances:int(0,64)!
>scale {service} to {replicas}
>{replicas} replicas of {service}
@query_logs search_logs logs|Search the logs.
-service,source,host:host!
-text,pattern,needle:qtext!
-minutes,last,window:int(1,600)?
>search the logs of {service} for {text'}[ in the last {minutes} minutes]
>find {text'} in {service}[ within {minutes} minutes]
@create_branch new_branch branch|Create a branch.
-name,branch,title:slug!
-base,from,source:slug?
>branch {name}[ from {base}]
>create a branch {name}[ off {base}]
@open_pr pull_request propose|Open a pull request.
-branch,head,source:slug!
-title,subject,summary:qtext!
-draft,wip:bool?
-reviewers,review_by,ask:list(person)?
>open a {draft=true:draft} pull request for {branch} titled {title'}
>pull request {title'} from {branch}[, reviewers {reviewers}]
@backup make_backup snapshot|Make a backup of a folder.
-path,folder,source:path!
-target,to,destination:path?
-compress,zip,packed:bool?
>back up {path}[ to {target}][ {compress=true:compressed}]
>backup of {path}[, {compress=false:uncompressed}]
@delete_file remove remove_path|Delete a path.
-path,file,what:path!
-recursive,deep:bool?
>(delete|remove) {path}[ {recursive=true:and everything in it}]
@ping check_host reach|Check whether a host answers.
-host,address,target:ip!
-count,times,packets:int(1,50)?
-timeout,wait,seconds:num(0.1,10,1)?
>ping {host}[ {count} times][ with a timeout of {timeout}]
>does {host} answer
@fetch_url download get_page|Fetch a web page.
-url,address,link:url!
-retries,tries,attempts:int(0,9)?
-headers,options,extra.agent,user_agent:label?
-headers,options,extra.accept,format:enum(#formats)?
>(fetch|download|get) {url}[ with {retries} retries]
>fetch {url}[ as {agent}][ in {accept}]
@run_query sql_query database|Run a stored query.
-name,query,report:slug!
-limit,rows,max_rows:int(1,5000)?
-sort,order_by,by:slug?
>run {name}[ limit {limit}][ sorted by {sort}]
>{limit} rows of {name}
@add_user create_user new_account|Create an account.
-user,login,name:login!
-email,mail,address:email!
-admin,root,superuser:bool?
>create user {user} with {email}[ {admin=true:as admin}]
>account for {user}, {email}[, {admin=false:not an admin}]
@set_permission grant permit|Grant rights to a user.
-user,account,who:login!
-right,permission,role:enum(#rights)!
-path,on,resource:path?
>grant {right} to {user}[ on {path}]
>{user} may {right}[ {path}]
@join_network connect_wifi wifi|Connect to a network.
-network,ssid,name:enum(#networks)!
-password,key,secret:id?
-hidden,invisible:bool?
>connect to {network}[ with password {password}]
>join {network}[ {hidden=true:which is hidden}]
@sensor_alert threshold alert_rule|Alert when a sensor passes a value.
-sensor,source,name:host!
-above,max,over:num(-20,120,1)?
-below,min,under:num(-40,60,1)?
-channel,via,notify:enum(#channels)?
>alert me[ by {channel}] when {sensor} is above {above}
>when {sensor} drops below {below} notify[ by {channel}]
@train_model fit start_training|Train a model.
-model,name,network:slug!
-epochs,passes,rounds:int(1,200)!
-lr,learning_rate,rate:num(0.01,1,2)?
-augment,augmentation:bool?
>train {model} for {epochs} epochs[ with rate {lr}][ {augment=true:with augmentation}]
>fit {model}, {epochs} epochs[, {augment=false:no augmentation}]
@convert_units unit_convert measure_convert|Convert a value between two units.
-value,amount,number:num(0.1,9000,2)!
-from,source,unit_in:enum(#units)!
-to,target,unit_out:enum(#units)!
>(convert|change) {value} {from} (to|into) {to}
>how many {to} are {value} {from}
@calculate compute arithmetic|Compute with two numbers.
-a,left,first:num(-99,999,2)!
-b,right,second:num(-99,999,2)!
-op,operation,how:enum(#ops)!
>{op} {a} and {b}
>with {a} and {b} do {op}
@roll_dice dice throw_dice|Roll dice.
-count,dice,number:int(1,20)!
-sides,faces,die:int(2,100)!
-bonus,modifier,plus:int(-9,20)?
>roll {count} dice with {sides} sides[ and bonus {bonus}]
@random_pick choose pick_one|Pick one of several things.
-from,choices,options:list(label)!
-seed,start:int(0,99999)?
>pick one of {from}[ with seed {seed}]
>choose between {from}
@encode_text encode hash_text|Encode a text.
-text,input,value:qtext!
-method,codec,algorithm:enum(#codecs)!
>encode {text'} (with|as) {method}
>{method} of {text'}
@define_word dictionary meaning|Look up a word in a dictionary.
-word,term,entry:made!
-language,lang,dictionary:enum(#languages)?
>define {word}[ in {language}]
>what does {word} mean[ in {language}]
@rhyme find_rhymes rhymes|Find rhymes.
-word,with,term:word!
-count,limit,max:int(1,40)?
>{count} rhymes for {word}
>what rhymes with {word}
)";
constexpr const char* kLife = R"(
@set_alarm wake_me alarm|Set an alarm.
-time,at,when:time! HH:MM
-days,repeat,on:elist(#weekdays)?
-sound,tone,melody:title?
>(wake me|alarm) at {time}[ on {days}][ with {sound}]
>alarm for {time}[, sound {sound}]
@find_contact look_up_contact contact|Look up a contact.
-name,who,person:person!
-field,detail,what:enum(#fields)?
>(find|look up) {name}
>what is the {field} of {name}
@add_contact save_contact new_contact|Save a contact.
-name,who,person:person!
-phone,number,tel:phone?
-email,mail:email?
-company,firm,employer:company?
>save {name}[ with number {phone}][ and mail {email}]
>new contact {name}[ from {company}][, {phone}]
@habit_done tick_habit habit|Tick off a habit.
-habit,what,name:label!
-times,count,amount:int(1,20)?
-date,day,on:date?
>(did|done with) {habit}[ {times} times][ on {date}]
>tick {habit}[ for {date}]
@lend_item lend loan|Note that something was lent.
-item,thing,what:noun!
-to,borrower,who:person!
-until,back_by,due:date?
>lent the {item} to {to}[ until {until}]
>{to} borrowed my {item}[ until {until}]
@transfer_money pay send_money|Send money to somebody.
-to,recipient,payee:person!
-amount,sum,value:num(1,5000,2)!
-currency,unit,money:enum(#money)?
-purpose,reference,for:qtext?
>(pay|send|transfer) {amount} {currency} to {to}[ for {purpose'}]
>{to} gets {amount} {currency}
@set_budget budget limit_spending|Set a budget for a category.
-category,what,for:label!
-amount,limit,max:int(10,5000)!
-period,per,every:enum(#frequency)?
>budget {category} at {amount}[ {period}]
>spend at most {amount} on {category}
@savings_goal goal save_up|Create a savings goal.
-name,goal,for:qtext!
-target,amount,sum:num(50,20000,2)!
-by,deadline,until:date?
>save {target} for {name'}[ by {by}]
>goal {name'} of {target}[ until {by}]
@stock_quote share_price quote|Look up the price of a share.
-symbol,ticker,share:code!
-currency,in,money:enum(#money)?
>price of {symbol}[ in {currency}]
>how is {symbol} doing[ in {currency}]
@trade_shares place_order buy_shares|Trade shares.
-symbol,ticker,share:code!
-quantity,count,shares:int(1,900)!
-side,action,direction:enum(#buy_sell)!
-limit,price,at:num(1,900,2)?
>{side} {quantity} {symbol}[ at {limit}]
>{side} {quantity} shares of {symbol}[, limit {limit}]
@plant_care care_entry garden_log|Note what was done in the garden.
-plant,what,bed:enum(#plants)!
-work,action,job:enum(#garden_jobs)!
-note,remark,comment:qtext?
>{work} the {plant}[, note {note'}]
>I want to {work} the {plant}
@vet_visit book_vet pet_appointment|Book a visit to the vet.
-pet,animal,patient:label!
-date,day,on:date!
-reason,why,for:label?
>vet for {pet} on {date}[ because of {reason}]
>take {pet} to the vet on {date}
@library_search find_book books|Search the library.
-title,book,name:qtext?
-author,by,writer:person!
-language,in,lang:enum(#languages)?
>books by {author}[ in {language}]
>find {title'} by {author}
@renew_loan extend_loan renew_book|Renew a library loan.
-book,item,code:id!
-weeks,extend,for:int(1,8)?
>renew {book}[ for {weeks} weeks]
>keep {book} {weeks} more weeks
@quiz_me start_quiz practise|Start a quiz.
-subject,topic,field:enum(#subjects)!
-questions,count,number:int(3,60)?
-level,difficulty,grade:enum(#levels)?
>(quiz me|test me) on {subject}[ with {questions} questions][ at {level} level]
>{questions} {subject} questions
@add_flashcard new_card flashcard|Add a flash card.
-front,question,side_a:qtext!
-back,answer,side_b:qtext!
-deck,stack,in:label?
>card {front'} with answer {back'}[ in deck {deck}]
>flash card: {front'} means {back'}
@homework add_homework assignment|Note homework.
-subject,course,class:enum(#subjects)!
-task,what,work:text!
-due,until,deadline:enum(#weekdays)?
>{subject} homework: {task}
>{subject} for {due}: {task}
@donate give donation|Give money to a cause.
-cause,charity,to:title!
-amount,sum,value:num(1,500,2)!
-monthly,recurring,repeat:bool?
-anonymous,hidden:bool?
>donate {amount} to {cause}[ {monthly=true:every month}][ {anonymous=true:anonymously}]
>{amount} for {cause}[, {monthly=false:just once}]
@report_lost lost_item lost_and_found|Report a lost thing.
-item,thing,what:label!
-place,where,location:place!
-color,colour,look:enum(#colours)?
-material,made_of,from:enum(#materials)?
>lost a {color} {item} at {place}
>I lost my {item} at {place}[, made of {material}]
@order_print poster print_photo|Order a print of a photo.
-file,image,photo:file!
-material,surface,on:enum(#materials)?
-size,format,dimensions:enum(#sizes)!
-framed,with_frame:bool?
>print {file} {size}[ on {material}][ {framed=true:framed}]
>a {size} print of {file}[, {framed=false:no frame}]
@call_service request_repair handyman|Request a repair.
-what,item,object:label!
-where,room,place:enum(#rooms)?
-day,on,weekday:enum(#weekdays)?
-urgent,emergency:bool?
>repair the {what}[ in the {where}][ on {day}][ {urgent=true:urgently}]
>the {what} in the {where} needs fixing[ on {day}]
@vote cast_vote poll_vote|Vote in a poll.
-poll,question,name:title!
-choice,option,answer:label!
>vote {choice} in {poll}
>in {poll} I choose {choice}
@start_poll create_poll ask_group|Start a poll.
-question,title,text:qtext!
-options,choices,answers:list(label)!
-hours,open_for,duration:int(1,99)?
>poll {question'} with {options}[ for {hours} hours]
>ask {question'}, options {options}
@memorise remember keep_fact|Keep a fact for later.
-fact,text,what:text!
-topic,subject,about:label?
>remember that {fact}
>keep in mind: {fact}
>under {topic}, remember that {fact}
@dictate take_dictation transcript|Write down a dictated text word for word.
-words,text,content:text!
-language,lang,in:enum(#languages)?
>take this down: {words}
>dictation: {words}
>dictation in {language}: {words}
@leave_voicemail voice_message voicemail|Leave a voice message.
-to,for,contact:person!
-message,words,says:text!
>leave {to} a voice message: {message}
>voicemail for {to} saying {message}
>inform {to} that {message}
>let {to} hear that {message}
@sticky_note post_it put_sticker|Put a sticky note on the board.
-words,text,note:text!
-color,colour,paper:enum(#colours)?
-labels,tags,topics:list(word)?
>stick up {words}, labels {labels}
>a {color} sticky note: {words}
>sticky note {words'}[ with labels {labels}]
@announce broadcast speak|Speak a text through the speakers.
-text,words,message:qtext!
-rooms,where,speakers:elist(#rooms)?
-loud,urgent:bool?
>announce {text'}[ in the {rooms}]
>say {text'} {loud=true:loudly}[ in the {rooms}]
@countdown_day days_until event_countdown|Count the days until a date.
-date,until,to:date!
-name,event,label:label?
>days until {date}[ for {name}]
>how long until {name} on {date}
@world_clock time_in local_time|Tell the time in a city.
-city,place,where:city!
-format24,military,long:bool?
>what time is it in {city}[ {format24=true:on the 24 hour clock}]
>time in {city}
@stopwatch lap start_stopwatch|Start a stopwatch.
-name,label,what:label!
-laps,rounds,count:int(1,60)?
-beep,signal,sound:bool?
>stopwatch for {name}[ with {laps} laps][ {beep=true:and beep}]
>time my {name}[, {laps} laps][, {beep=false:silently}]
)";
// clang-format on

std::vector<std::string> SplitOn(const std::string& text, char separator) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

class TemplateParser {
 public:
  explicit TemplateParser(const std::string& text) : text_(text) {}

  Template Sequence(std::string_view stops) {
    Template out;
    while (at_ < text_.size() && stops.find(text_[at_]) == std::string_view::npos)
      out.push_back(Next(stops));
    return out;
  }

 private:
  Node Next(std::string_view stops) {
    switch (text_[at_]) {
      case '{':
        return Slot();
      case '[':
        return Optional();
      case '(':
        return Choice();
      default:
        return PlainWords(stops);
    }
  }

  Node PlainWords(std::string_view stops) {
    Node node;
    while (at_ < text_.size() &&
           std::string_view("{[(").find(text_[at_]) == std::string_view::npos &&
           stops.find(text_[at_]) == std::string_view::npos)
      node.words += text_[at_++];
    return node;
  }

  Node Optional() {
    Node node;
    node.what = Node::What::kOptional;
    ++at_;
    node.branches.push_back(Sequence("]"));
    ++at_;
    return node;
  }

  Node Choice() {
    Node node;
    node.what = Node::What::kChoice;
    do {
      ++at_;
      node.branches.push_back(Sequence("|)"));
    } while (text_[at_] == '|');
    ++at_;
    return node;
  }

  Node Slot() {
    Node node;
    node.what = Node::What::kSlot;
    const size_t end = text_.find('}', at_);
    std::string inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (const size_t equals = inside.find('='); equals != std::string::npos) {
      const size_t colon = inside.find(':', equals);
      node.constant = inside.substr(equals + 1, colon - equals - 1);
      node.words = inside.substr(colon + 1);
      inside.resize(equals);
    }
    if (inside.back() == '\'') {
      node.quoted = true;
      inside.pop_back();
    }
    node.slot = inside;
    return node;
  }

  const std::string& text_;
  size_t at_ = 0;
};

// "names:kind! Description", the names already cut off.
Param ParseParam(std::vector<std::string> names, const std::string& rest) {
  Param param;
  param.names = std::move(names);
  const size_t mark = rest.find_first_of("!?");
  assert(mark != std::string::npos);
  param.kind = ParseKind(rest.substr(0, mark));
  param.type = TypeOf(param.kind);
  param.required = rest[mark] == '!';
  if (mark + 2 < rest.size()) param.description = rest.substr(mark + 2);
  return param;
}

Param& GroupNamed(Shape& shape, const std::vector<std::string>& names) {
  for (Param& param : shape.params)
    if (param.names == names) return param;
  Param group;
  group.names = names;
  group.type = Type::kObject;
  group.required = false;
  shape.params.push_back(std::move(group));
  return shape.params.back();
}

void AddParam(Shape& shape, const std::string& line) {
  const size_t colon = line.find(':');
  const std::string names = line.substr(1, colon - 1), rest = line.substr(colon + 1);
  const size_t dot = names.find('.');
  if (dot == std::string::npos) {
    shape.params.push_back(ParseParam(SplitOn(names, ','), rest));
    return;
  }
  Param& group = GroupNamed(shape, SplitOn(names.substr(0, dot), ','));
  group.members.push_back(ParseParam(SplitOn(names.substr(dot + 1), ','), rest));
}

void AddLine(std::vector<Shape>& shapes, const std::string& line) {
  if (line[0] == '@') {
    std::vector<std::string> parts = SplitOn(line.substr(1), '|');
    Shape shape;
    shape.names = SplitOn(parts[0], ' ');
    shape.descriptions.assign(parts.begin() + 1, parts.end());
    shapes.push_back(std::move(shape));
  } else if (line[0] == '-') {
    AddParam(shapes.back(), line);
  } else {
    assert(line[0] == '>');
    shapes.back().templates.push_back(ParseTemplate(line.substr(1)));
  }
}

std::vector<Shape> BuildShapes() {
  std::vector<Shape> shapes;
  for (const char* text : {kHome, kOffice, kShopping, kTravel, kHealth, kMedia, kTech, kLife})
    for (const std::string& line : SplitOn(text, '\n')) AddLine(shapes, line);
  return shapes;
}

}  // namespace

ValueKind ParseKind(const std::string& text) {
  ValueKind kind;
  const size_t open = text.find('(');
  kind.name = text.substr(0, open);
  if (open == std::string::npos) return kind;
  const std::string inside = text.substr(open + 1, text.size() - open - 2);
  if (kind.name != "int" && kind.name != "num") {
    kind.item = inside;
    return kind;
  }
  const std::vector<std::string> parts = SplitOn(inside, ',');
  kind.low = static_cast<int>(std::strtod(parts[0].c_str(), nullptr));
  kind.high = std::atoi(parts[1].c_str());
  if (parts.size() > 2) kind.decimals = std::atoi(parts[2].c_str());
  return kind;
}

Type TypeOf(const ValueKind& kind) {
  if (kind.name == "int") return Type::kInteger;
  if (kind.name == "num") return Type::kNumber;
  if (kind.name == "bool") return Type::kBoolean;
  if (kind.name == "list" || kind.name == "elist") return Type::kStringList;
  return Type::kString;
}

Template ParseTemplate(const std::string& text) { return TemplateParser(text).Sequence(""); }

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = BuildShapes();
  return shapes;
}

}  // namespace needle::corpus
